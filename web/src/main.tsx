import { render } from "preact";

import { Page, Problem } from "./page";
import { followSystem } from "./parts/motion";
import { parse } from "./report";
import "./style.css";

const place = document.getElementById("app")!;
followSystem();
try {
  render(<Page report={parse(document.getElementById("data")?.textContent ?? "")} />, place);
} catch (error) {
  render(<Problem words={String(error)} />, place);
}
document.body.dataset["ready"] = "yes";
