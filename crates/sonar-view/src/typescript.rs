//! The types of the documents that the web app draws, for TypeScript.
//!
//! `SNAPSHOTS=overwrite cargo test -p sonar-view typescript` writes them into `web/src/documents.ts`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ts_rs::{Config, TS, TypeVisitor};

const HEAD: &str = "\
// The documents that the commands write with --json. What is not known is null. Made from the types in crates/sonar-view:
// SNAPSHOTS=overwrite cargo test -p sonar-view typescript
";

/// The declarations of types by name.
#[derive(Default)]
struct Declarations {
    config: Config,
    by_name: BTreeMap<String, String>,
}

impl TypeVisitor for Declarations {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // Numbers, lists and the like have none.
        if T::output_path().is_none() {
            return;
        }
        let docs = T::docs().unwrap_or_default();
        let declaration = format!("{docs}export {}\n", T::decl(&self.config));
        match self.by_name.insert(T::ident(&self.config), declaration.clone()) {
            None => T::visit_dependencies(self),
            Some(known) => assert_eq!(known, declaration, "two types have this name"),
        }
    }
}

impl Declarations {
    /// Declares a document and all that it is made of.
    fn document<T: TS + 'static>(&mut self) -> String {
        self.visit::<T>();
        T::ident(&self.config)
    }

    fn text(self, documents: &[String]) -> String {
        let declarations: Vec<String> = self.by_name.into_values().collect();
        // A comment of one line stays on one, and lines have no spaces at their ends.
        let declarations = declarations.join("\n").replace("/**\n *", "/**").replace("\n */", " */");
        let lines: Vec<&str> = declarations.lines().map(str::trim_end).collect();
        format!("{HEAD}\nexport type Report = {};\n\n{}\n", documents.join(" | "), lines.join("\n"))
    }
}

#[test]
fn the_types_of_the_web_app_are_those_of_the_documents() {
    let mut all = Declarations { config: Config::new().with_large_int("number"), ..Declarations::default() };
    let documents = [
        all.document::<crate::digest::json::DigestDocument>(),
        all.document::<crate::compare::ComparisonDocument<'static>>(),
        all.document::<crate::disk::run::BenchDocument<'static>>(),
        all.document::<crate::disk::compare::DiskComparisonDocument<'static>>(),
        all.document::<crate::files::json::IoReportDocument<'static>>(),
        all.document::<crate::profiler::impact::json::ImpactDocument<'static>>(),
        all.document::<crate::profiler::impact::json::LongImpactDocument<'static>>(),
        all.document::<crate::ftdc::FtdcReport>(),
        all.document::<crate::changes::ChangesReport>(),
        all.document::<crate::timeline::TimelineReport>(),
        all.document::<crate::incident::IncidentReport>(),
        all.document::<crate::queries::ShapeHistory>(),
        all.document::<crate::past::waits::WaitsReport>(),
        all.document::<crate::past::all_series::AllSeriesReport>(),
        all.document::<crate::past::events::EventsReport>(),
        all.document::<crate::past::storage::StorageReport>(),
        all.document::<crate::past::different::DifferentReport>(),
        all.document::<crate::why::WhyReport>(),
        all.document::<crate::stacks::StackReport>(),
        all.document::<crate::stacks::StackComparison>(),
        all.document::<crate::current_op::CurrentReportDocument<'static>>(),
        all.document::<crate::explain::ExplainReportDocument<'static>>(),
        all.document::<crate::problem::ProblemDocument<'static>>(),
    ];
    // No page draws them by itself.
    all.document::<crate::page::PageStatus>();
    all.document::<crate::now::NowReport<'static>>();
    all.document::<crate::page::RequestProblem>();
    let text = all.text(&documents);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/documents.ts");
    if std::env::var("SNAPSHOTS").is_ok_and(|what| what == "overwrite") {
        fs::write(&file, &text).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap();
    assert!(written == text, "{} differs from the types of the documents; {HEAD}", file.display());
}
