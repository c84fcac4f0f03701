// The page of why, and what its tests look at.

export { waitedBy } from "./files";
export { activity, LIMITS_TABLE, processors, processorsText, sinceStart, tiles, WhyPage } from "./page";
export { partRows } from "./shape";
export { partOf, unseen } from "./words";
