import { render } from "preact";

import { LivePage } from "./live/page";
import { Page, Problem } from "./page";
import { followSystem } from "./parts/motion";
import { isLive, parse } from "./report";
import "./style.css";

const place = document.getElementById("app")!;
followSystem();
try {
  const report = parse(document.getElementById("data")?.textContent ?? "");
  render(isLive(report) ? <LivePage /> : <Page report={report} />, place);
} catch (error) {
  render(<Problem words={String(error)} />, place);
}
document.body.dataset["ready"] = "yes";
