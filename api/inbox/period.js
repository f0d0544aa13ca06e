// Times by their names, as days of the reader's own zone.

const DAYS = {
  Today: (year, month, day) => [[year, month, day], [year, month, day]],
  "This week": (year, month, day, weekday) => [[year, month, day - weekday], [year, month, day]],
  "This month": (year, month, day) => [[year, month, 1], [year, month, day]],
  // The day before the first of a month is the last of the one before.
  "Last month": (year, month) => [[year, month - 1, 1], [year, month, 0]],
  "This quarter": (year, month, day) => [[year, month - (month % 3), 1], [year, month, day]],
};

export const PERIODS = Object.keys(DAYS);

/** Return the first and the last day (`2026-03-02`) of a time. A week begins on Monday. */
export function period(name, now = new Date()) {
  const days = DAYS[name](now.getFullYear(), now.getMonth(), now.getDate(), (now.getDay() + 6) % 7);
  // As if they were of UTC, in which no day is longer than another.
  return days.map((each) => new Date(Date.UTC(...each)).toISOString().slice(0, 10));
}
