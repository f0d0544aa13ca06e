// Whether the reader may answer a question. The service says so; where it does not, and in lists, what can be
// known here is.

import {may, me} from "./api.js";
import {clock} from "./markup.js";

const RESPOND = "runs:respond";

/** Return whether the reader is one of some subjects and groups. */
export function isAmong(names) {
  return (names ?? []).some((name) => name === me?.subject || me?.groups.some((group) => name === `group:${group}`));
}

/** Return whether somebody else has claimed a question. */
export const isClaimedByOther = ({claim}) => Boolean(claim && claim.by !== me?.subject && claim.on_behalf_of !== me?.subject);

/** Return why the reader may not answer a question, or null if nothing speaks against it. */
export function barrier(question) {
  if (isClaimedByOther(question)) return `${question.claim.by} works on this until ${clock(question.claim.until)}.`;
  if (question.may_answer === true) return null;
  if (question.may_answer === false) {
    return question.why_not?.detail ?? question.why_not?.message ?? "You may not answer this question.";
  }
  if (!may(RESPOND)) return `You may read this question. Answering it requires the capability ${RESPOND}.`;
  if (question.assignees_only && !isAmong(question.assignees)) return `Only ${question.assignees.join(", ")} may answer this.`;
  const {requested_capability: capability, escalations} = question;
  if (capability && !may(capability) && !escalations?.length) return `Only who has the capability ${capability} may answer this.`;
  return null;
}
