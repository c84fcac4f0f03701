// Which page draws which document.

import { ComparisonPage } from "./pages/comparison";
import { CurrentPage } from "./pages/current";
import { DifferentPage } from "./pages/different";
import { DigestPage } from "./pages/digest/page";
import { DiskComparisonPage } from "./pages/disk/comparison";
import { DiskPage } from "./pages/disk/page";
import { ExplainPage } from "./pages/explain";
import { FtdcPage } from "./pages/ftdc";
import { EventsPage } from "./pages/events";
import { ChangesPage, IncidentPage, TimelinePage } from "./pages/history";
import { ImpactPage, LongImpactPage } from "./pages/impact";
import { IoPage } from "./pages/io";
import { SeriesPage } from "./pages/series";
import { ShapePage } from "./pages/shape";
import { StackComparisonPage, StacksPage } from "./pages/stacks";
import { StoragePage } from "./pages/storage";
import { WaitsPage } from "./pages/waits";
import { WhyPage } from "./pages/why/page";
import { visible } from "./parts/format";
import type { Report } from "./report";

export function Page({ report }: { report: Report }) {
  switch (report.kind) {
    case "all_series":
      return <SeriesPage report={report} />;
    case "different":
      return <DifferentPage report={report} />;
    case "digest":
      return <DigestPage report={report} />;
    case "comparison":
      return <ComparisonPage report={report} />;
    case "current_operations_report":
      return <CurrentPage report={report} />;
    case "disk_bench":
      return <DiskPage report={report} />;
    case "disk_compare":
      return <DiskComparisonPage report={report} />;
    case "events":
      return <EventsPage report={report} />;
    case "explain_report":
      return <ExplainPage report={report} />;
    case "ftdc_report":
      return <FtdcPage report={report} />;
    case "incident":
      return <IncidentPage report={report} />;
    case "io_report":
      return <IoPage report={report} />;
    case "problem":
      return <Problem words={`There is no report: ${visible(report.words)}`} />;
    case "profiler_impact":
      return <ImpactPage report={report} />;
    case "profiler_impact_long":
      return <LongImpactPage report={report} />;
    case "shape":
      return <ShapePage report={report} />;
    case "stacks":
      return <StacksPage report={report} />;
    case "stacks_compare":
      return <StackComparisonPage report={report} />;
    case "storage":
      return <StoragePage report={report} />;
    case "timeline":
      return <TimelinePage report={report} />;
    case "waits":
      return <WaitsPage report={report} />;
    case "what-changed":
      return <ChangesPage report={report} />;
    case "why":
      return <WhyPage report={report} />;
    default:
      return <Problem words={`There is no page for ${JSON.stringify((report as { kind: unknown }).kind)}.`} />;
  }
}

export const Problem = ({ words }: { words: string }) => (
  <main>
    <h1>mongosonar</h1>
    <p class="bad">{words}</p>
  </main>
);
