// Who asks a question, and what the reader is to it: whether they may answer it, have claimed it, or it is for them.

import {me} from "./api.js";
import {clock, serviceTime} from "./markup.js";

/** Return whether the reader is one of some subjects and groups. */
export function isAmong(names) {
  return (names ?? []).some((name) => name === me?.subject || me?.groups.some((group) => name === `group:${group}`));
}

/** Return the name of the agent that asks; undefined if none does. */
export const agentOf = ({address}) => address?.match(/;agent:([^;]+)/)?.[1];

const claimants = ({claim}) => [claim?.by, claim?.on_behalf_of].filter(Boolean);

/** Return whether the reader has claimed a question, or somebody for them. */
export const isClaimedByMe = (question) => claimants(question).includes(me?.subject);

/** Return whether a question is the reader's: claimed by them, or for them by name or group. */
export function isMine(question) {
  const escalated = (question.escalations ?? []).filter(({at}) => Date.parse(at) <= serviceTime()).flatMap(({to}) => to ?? []);
  return isClaimedByMe(question) || isAmong([...(question.assignees ?? []), ...escalated, ...(question.quorum?.of ?? [])]);
}

/** Return why the reader may not answer an open question, or null if they may. */
export function barrier(question) {
  if (question.may_answer !== false) return null;
  const {claim, why_not: why} = question;
  if (why?.code === "claimed" && claim) return `${claim.by} works on this until ${clock(claim.until)}.`;
  return why?.detail ?? "You may not answer this question.";
}
