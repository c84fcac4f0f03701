//! What each part of a command means for its shape.

use crate::bson::Key;
use crate::commands::CommandKind;

/// How a document or array is read. Each open container has a mode.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ContainerMode {
    /// The command itself: a set of fields.
    Command,
    /// A match expression: collects conditions.
    Filter,
    /// The value of a path in a filter, before its first key decides the mode.
    Undecided,
    /// `{a: {$gt: …}}`: its conditions belong to the filter around it.
    Conditions,
    /// A document of operators that is a value of its own: `$not`, `$each`, `$text` …
    Operators,
    /// The value of `$elemMatch`, before its first key decides whether it is a filter or operators.
    ElemMatch,
    /// The array of `$and`: its filters belong to the filter around it.
    And,
    /// The array of `$or` or `$nor`: a set of filters.
    Branches,
    /// An array of literals that may contain operators (`$all` with `$elemMatch`).
    Literals,
    /// A document in an array of literals, before its first key decides the mode.
    LiteralOrOperators,
    /// An aggregation expression.
    Expression,
    /// An array in an aggregation expression.
    ExpressionList,
    /// An array of stages.
    Pipeline,
    /// A stage, before and after its name.
    Stage,
    /// `$facet`: names and pipelines.
    Facet,
    /// `$lookup`, `$graphLookup`, `$unionWith`, `$merge`, `$out`, `$unwind`: names are kept; pipelines and filters
    /// may be inside.
    Kept,
    /// `$geoNear`: literals, and a filter.
    GeoNear,
    /// `$setWindowFields`, `$fill`: expressions, and a sort.
    WindowFields,
    /// Sort, index keys: order and directions are kept.
    Sort,
    /// `min`, `max`: order is kept, values are masked.
    Bounds,
    /// Projection: 0 and 1 are kept.
    Projection,
    /// The list of `$unset`.
    Unset,
    /// An update document, before its first key decides between operators and a replacement.
    Update,
    /// The fields of an update operator.
    UpdateFields,
    /// The value of a field of an update operator.
    UpdateValue,
    /// The fields of `$pull`.
    Pull,
    /// `arrayFilters`: a list of filters.
    ArrayFilters,
    /// Collation, hint: every literal is kept.
    Literal,
    /// The array of statements.
    Statements,
    /// One of them.
    Statement,
    /// The array of index specifications, and one of them.
    Indexes,
    /// One index specification.
    Index,
    /// A literal sub-document, entered only for its plain text.
    Masked,
}

/// How a field of a command counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Field {
    /// It is not part of the shape.
    Ignore,
    /// A document or array, read in this mode; an empty one counts as absent.
    Part(ContainerMode),
    /// Counts as present or absent; 0 is absent.
    Presence,
    /// A flag; false is absent.
    Flag,
    /// A level: 0 is kept, any negative one as -1, and all others count as absent.
    Level,
    /// A literal that is kept, or a document of such literals.
    Literal,
    /// A typed placeholder.
    Masked,
}

/// How a field counts, and its place in the text.
#[derive(Copy, Clone)]
pub struct RankedField {
    /// Fields stand in the text in ascending order of it.
    pub rank: u8,
    /// How it counts.
    pub field: Field,
}

/// Field `key` of a command.
pub fn field(command: CommandKind, key: &Key<'_>) -> RankedField {
    use CommandKind as C;
    use Field::{Flag, Ignore, Level, Literal, Masked, Part, Presence};
    let (rank, field) = match (command, key.bytes) {
        (C::Find, b"filter") | (C::Count | C::Distinct | C::MapReduce | C::FindAndModify, b"query") => {
            (1, Part(ContainerMode::Filter))
        }
        (C::Group, b"key") => (0, Part(ContainerMode::Sort)),
        (C::Group, b"cond" | b"condition" | b"query" | b"q") => (1, Part(ContainerMode::Filter)),
        // `$reduce` is in each of them, and sources write it in different types.
        (C::Group, b"$keyf" | b"finalize") => (6, Masked),
        (C::GeoNear, b"query" | b"search" | b"filter") | (C::PlanCache, b"query") => {
            (1, Part(ContainerMode::Filter))
        }
        (C::GeoNear, b"limit" | b"num" | b"maxDistance" | b"minDistance") => (5, Presence),
        (C::GeoNear, b"spherical" | b"uniqueDocs" | b"includeLocs") => (9, Flag),
        (C::GeoNear, b"project") | (C::PlanCache, b"projection") => (2, Part(ContainerMode::Projection)),
        (C::PlanCache, b"sort") => (3, Part(ContainerMode::Sort)),
        (C::Fsync, b"lock") => (1, Flag),
        // Servers change something with any of these, and only answer without: `ProfileCmdBase::run` of
        // <https://github.com/mongodb/mongo>, `src/mongo/db/commands/profile_common.cpp`.
        (C::Profile, b"profile") => (0, Level),
        (C::Profile, b"filter") => (1, Part(ContainerMode::Filter)),
        (C::Profile, b"slowms" | b"sampleRate") => (2, Masked),
        (C::Listing, b"filter") => (1, Part(ContainerMode::Filter)),
        (C::Listing, b"nameOnly" | b"authorizedCollections" | b"authorizedDatabases") => (9, Flag),
        (C::Group | C::GeoNear | C::PlanCache, b"collation") => (8, Literal),
        (C::Distinct, b"key") => (0, Literal),
        (C::Find, b"projection") | (C::FindAndModify, b"fields") => (2, Part(ContainerMode::Projection)),
        (C::Find | C::FindAndModify | C::MapReduce, b"sort") => (3, Part(ContainerMode::Sort)),
        (C::Find | C::Count, b"skip") => (4, Presence),
        (C::Find | C::Count | C::MapReduce, b"limit") => (5, Presence),
        (C::Find, b"min" | b"max") => (6, Part(ContainerMode::Bounds)),
        (
            C::Find,
            b"singleBatch" | b"returnKey" | b"showRecordId" | b"tailable" | b"awaitData" | b"allowDiskUse"
            | b"oplogReplay",
        ) => (9, Flag),
        (C::Aggregate, b"pipeline") => (1, Part(ContainerMode::Pipeline)),
        (C::Aggregate, b"allowDiskUse" | b"explain") => (9, Flag),
        (C::FindAndModify, b"update") => (2, Part(ContainerMode::Update)),
        (C::FindAndModify, b"arrayFilters") => (4, Part(ContainerMode::ArrayFilters)),
        (C::FindAndModify, b"remove" | b"new" | b"upsert") => (5, Flag),
        (C::MapReduce, b"map" | b"reduce" | b"finalize") => (6, Masked),
        (C::MapReduce, b"out") => (7, Literal),
        (C::CreateIndexes, b"indexes") => (1, Part(ContainerMode::Indexes)),
        (C::Find | C::Count | C::Aggregate | C::Distinct | C::FindAndModify, b"hint") => (7, Literal),
        (C::Find | C::Count | C::Aggregate | C::Distinct | C::FindAndModify | C::MapReduce, b"collation") => {
            (8, Literal)
        }
        _ => (0, Ignore),
    };
    RankedField { rank, field }
}

/// Field `key` of a statement of update, delete or bulkWrite.
pub fn statement_field(key: &Key<'_>) -> RankedField {
    let (rank, field) = match key.bytes {
        b"q" | b"filter" => (1, Field::Part(ContainerMode::Filter)),
        b"u" | b"updateMods" => (2, Field::Part(ContainerMode::Update)),
        b"arrayFilters" => (3, Field::Part(ContainerMode::ArrayFilters)),
        b"multi" | b"upsert" => (4, Field::Flag),
        b"limit" => (4, Field::Presence),
        b"hint" => (5, Field::Literal),
        b"collation" => (6, Field::Literal),
        _ => (0, Field::Ignore),
    };
    RankedField { rank, field }
}

/// How the content of a pipeline stage is read.
pub fn stage(name: &[u8]) -> ContainerMode {
    match name {
        b"$match" => ContainerMode::Filter,
        b"$project" => ContainerMode::Projection,
        b"$sort" => ContainerMode::Sort,
        b"$facet" => ContainerMode::Facet,
        b"$lookup" | b"$graphLookup" | b"$unionWith" | b"$merge" | b"$out" | b"$unwind" => {
            ContainerMode::Kept
        }
        b"$geoNear" => ContainerMode::GeoNear,
        b"$setWindowFields" | b"$fill" => ContainerMode::WindowFields,
        _ => ContainerMode::Expression,
    }
}

/// Whether a `$` key begins a database reference, which is a literal, not an operator.
pub fn is_reference(key: &Key<'_>) -> bool {
    matches!(key.bytes, b"$ref" | b"$id" | b"$db")
}

/// Whether a router adds the field `key` to a part of a pipeline that it sends to its shards.
pub fn is_added_by_a_router(mode: ContainerMode, key: &[u8]) -> bool {
    match mode {
        ContainerMode::Expression => matches!(key, b"$willBeMerged" | b"$doingMerge"),
        ContainerMode::Sort => matches!(key, b"$_internalLimit" | b"$_internalOutputSortKeyMetadata"),
        _ => false,
    }
}

/// Whether an operator of expressions is an accumulator, too: for that, `['$a']` is one operand, an array.
pub fn is_accumulator(operator: &[u8]) -> bool {
    matches!(
        operator,
        b"$sum"
            | b"$avg"
            | b"$min"
            | b"$max"
            | b"$first"
            | b"$last"
            | b"$push"
            | b"$addToSet"
            | b"$mergeObjects"
            | b"$stdDevPop"
            | b"$stdDevSamp"
            | b"$setUnion"
            | b"$concatArrays"
            | b"$locf"
            | b"$linearFill"
    )
}

/// Whether an operator of expressions takes a date, alone or as `{date: …, timezone: …}`.
pub fn takes_a_date(operator: &[u8]) -> bool {
    matches!(
        operator,
        b"$year"
            | b"$month"
            | b"$week"
            | b"$dayOfMonth"
            | b"$dayOfWeek"
            | b"$dayOfYear"
            | b"$hour"
            | b"$minute"
            | b"$second"
            | b"$millisecond"
            | b"$isoDayOfWeek"
            | b"$isoWeek"
            | b"$isoWeekYear"
    )
}
