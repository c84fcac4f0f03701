//! What is provably a name? Decides which texts of a command or log line may be shown.
//!
//! A query's values must not come out of the decoder. A text is shown only where the server's own grammar says
//! that it is a name: a command that servers know, the collection that such a command works on, a stage of a
//! plan, the type of an index. Whatever else stands in such a place is written as `?`.

/// Stands for a text that is not provably a name.
pub const UNPROVEN: &[u8] = b"?";

/// Whether a key can be the name of a command. Commands of servers are plain words, but for two.
pub fn is_command_like(key: &[u8]) -> bool {
    let first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    matches!(key, b"$eval" | b"mapreduce.shardedfinish")
        || (key.len() <= 64
            && key.first().is_some_and(first)
            && key.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_'))
}

/// Whether a text can be a namespace (`db` or `db.collection`), by the server's rules for databases.
pub fn is_namespace(text: &[u8]) -> bool {
    let dot = memchr::memchr(b'.', text).unwrap_or(text.len());
    let (database, collection) = text.split_at(dot);
    text.len() <= 512
        && database.len() <= 64
        && !database.iter().any(|byte| *byte <= b' ' || matches!(byte, b'/' | b'\\' | b'"' | b'{' | b':'))
        && !collection.iter().any(|byte| *byte < b' ')
}

/// Whether a text is a hash as servers write them: hexadecimal digits.
pub fn is_hash(text: &[u8]) -> bool {
    text.len() <= 64 && text.iter().all(u8::is_ascii_hexdigit)
}

/// Whether a string that stands for a direction in an index key is a type of index.
pub fn is_index_type(text: &[u8]) -> bool {
    matches!(
        text,
        b"text"
            | b"2d"
            | b"2dsphere"
            | b"hashed"
            | b"geoHaystack"
            | b"wildcard"
            | b"columnstore"
            | b"queryable_encrypted_range"
            | b"2dsphere_bucket"
    )
}

/// Whether the operand of `$meta` is one that servers know.
pub fn is_meta(text: &[u8]) -> bool {
    matches!(
        text,
        b"textScore"
            | b"indexKey"
            | b"recordId"
            | b"sortKey"
            | b"randVal"
            | b"score"
            | b"scoreDetails"
            | b"searchScore"
            | b"searchScoreDetails"
            | b"searchHighlights"
            | b"searchSequenceToken"
            | b"searchRootDocumentId"
            | b"vectorSearchScore"
            | b"geoNearDistance"
            | b"geoNearPoint"
            | b"timeseriesBucketMinTime"
            | b"timeseriesBucketMaxTime"
            | b"stream"
    )
}

/// Whether a string of a collation is one of its settings: a locale, or a word of a fixed set.
pub fn is_collation_setting(key: &[u8], text: &[u8]) -> bool {
    match key {
        b"locale" => {
            // `simple`, `fr`, `fr_CA`, `zh_Hant`, `de@collation=phonebook`
            let language = text.split(|byte| matches!(byte, b'_' | b'@')).next().unwrap_or_default();
            let word = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'@' | b'=');
            text == b"simple"
                || ((2..=3).contains(&language.len()) && text.len() <= 32 && text.iter().all(word))
        }
        b"caseFirst" => matches!(text, b"upper" | b"lower" | b"off"),
        b"alternate" => matches!(text, b"non-ignorable" | b"shifted"),
        b"maxVariable" => matches!(text, b"punct" | b"space"),
        b"version" => text.len() <= 8 && text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.'),
        _ => false,
    }
}

/// Whether a field of `$lookup`, `$merge` and their like holds the name of a collection, database or field,
/// or a word of a fixed set.
pub fn is_name_field(key: &[u8], text: &[u8]) -> bool {
    match key {
        b"from" | b"coll" | b"db" | b"into" | b"as" | b"localField" | b"foreignField"
        | b"connectFromField" | b"connectToField" | b"depthField" | b"includeArrayIndex" | b"on"
        | b"timeField" | b"metaField" => true,
        b"path" => text.first() == Some(&b'$'),
        b"whenMatched" => {
            matches!(
                text,
                b"replace" | b"keepExisting" | b"merge" | b"fail" | b"pipeline" | b"replaceWithNew"
            )
        }
        b"whenNotMatched" => matches!(text, b"insert" | b"discard" | b"fail"),
        b"granularity" => matches!(text, b"seconds" | b"minutes" | b"hours"),
        _ => false,
    }
}

/// Whether `text`, which begins with `$` in an expression, can be shown as a path or variable: parts of word
/// characters. Others are paths to the server too, but so is a literal that somebody forgot to mark as one.
pub fn is_plain_path(text: &[u8]) -> bool {
    let word = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'$') || *byte >= 0x80
    };
    text.len() <= 256 && text.iter().all(word)
}

/// Whether the strings of a stage that begin with `$` are paths. In stages that hold no expressions, such as
/// `$search`, they are literals.
pub fn holds_expressions(stage: &[u8]) -> bool {
    matches!(
        stage,
        b"$group"
            | b"$project"
            | b"$addFields"
            | b"$set"
            | b"$replaceRoot"
            | b"$replaceWith"
            | b"$redact"
            | b"$bucket"
            | b"$bucketAuto"
            | b"$sortByCount"
            | b"$setWindowFields"
            | b"$_internalSetWindowFields"
            | b"$fill"
            | b"$densify"
            | b"$graphLookup"
            | b"$match"
            | b"$geoNear"
            | b"$facet"
            | b"$lookup"
            | b"$unionWith"
            | b"$merge"
            | b"$out"
            | b"$unwind"
            | b"$unset"
            | b"$sort"
            | b"$count"
            | b"$limit"
            | b"$skip"
            | b"$sample"
    )
}

/// Commands in the oplog. Their numbers differ from the letters of the other entries.
const APPLIED_COMMANDS: [(u8, &[u8], &[u8]); 16] = [
    (1, b"create", b"applied create"),
    (2, b"drop", b"applied drop"),
    (3, b"collMod", b"applied collMod"),
    (4, b"createIndexes", b"applied createIndexes"),
    (5, b"startIndexBuild", b"applied startIndexBuild"),
    (6, b"commitIndexBuild", b"applied commitIndexBuild"),
    (7, b"abortIndexBuild", b"applied abortIndexBuild"),
    (8, b"dropIndexes", b"applied dropIndexes"),
    (9, b"deleteIndexes", b"applied dropIndexes"),
    (10, b"renameCollection", b"applied renameCollection"),
    (11, b"dropDatabase", b"applied dropDatabase"),
    (12, b"applyOps", b"applied applyOps"),
    (13, b"commitTransaction", b"applied commitTransaction"),
    (14, b"abortTransaction", b"applied abortTransaction"),
    (15, b"convertToCapped", b"applied convertToCapped"),
    (16, b"emptycapped", b"applied emptycapped"),
];

/// The number of a command of the oplog, for [`applied`]; 255 if the command is not known.
pub fn applied_command(name: &[u8]) -> u8 {
    APPLIED_COMMANDS.iter().find(|(_, known, _)| *known == name).map_or(255, |(number, ..)| *number)
}

/// What an entry of the oplog did: by its letter, or the number of its command.
pub fn applied(op: u8) -> &'static [u8] {
    match op {
        b'i' => b"applied insert",
        b'u' => b"applied update",
        b'd' => b"applied delete",
        b'n' => b"applied noop",
        b'c' | 255 => b"applied command",
        _ => APPLIED_COMMANDS
            .iter()
            .find(|(number, ..)| *number == op)
            .map_or(b"applied op", |(.., name)| name),
    }
}

/// Stages of plans, as summaries name them. Sorted.
const STAGES: [&[u8]; 58] = [
    b"AND_HASH",
    b"AND_SORTED",
    b"BATCHED_DELETE",
    b"CACHED_PLAN",
    b"CLUSTERED_IXSCAN",
    b"COLLSCAN",
    b"COLUMN_SCAN",
    b"COUNT",
    b"COUNTSCAN",
    b"COUNT_SCAN",
    b"DELETE",
    b"DISTINCT",
    b"DISTINCT_SCAN",
    b"ENSURE_SORTED",
    b"EOF",
    b"EQ_LOOKUP",
    b"EQ_LOOKUP_UNWIND",
    b"EXPRESS",
    b"EXPRESS_CLUSTERED_IXSCAN",
    b"EXPRESS_DELETE",
    b"EXPRESS_IXSCAN",
    b"EXPRESS_UPDATE",
    b"FETCH",
    b"GEO_NEAR_2D",
    b"GEO_NEAR_2DSPHERE",
    b"GROUP",
    b"IDHACK",
    b"INDEX_PROBE_NODE",
    b"INTERNAL_PLACEHOLDER",
    b"IXSCAN",
    b"LIMIT",
    b"MATCH",
    b"MOCK",
    b"MULTI_ITERATOR",
    b"MULTI_PLAN",
    b"OR",
    b"PROJECTION",
    b"PROJECTION_COVERED",
    b"PROJECTION_DEFAULT",
    b"PROJECTION_SIMPLE",
    b"QUEUED_DATA",
    b"RECORD_STORE_FAST_COUNT",
    b"RETURN_KEY",
    b"SEARCH",
    b"SHARDING_FILTER",
    b"SKIP",
    b"SORT",
    b"SORT_MERGE",
    b"SPOOL",
    b"SUBPLAN",
    b"TEXT",
    b"TEXT_MATCH",
    b"TEXT_OR",
    b"TIMESERIES_MODIFY",
    b"UNPACK_TS_BUCKET",
    b"UPDATE",
    b"UPSERT",
    b"VIRTUAL_SCAN",
];

/// Writes a plan summary: known stages and the key patterns of their indexes, and `?` for everything else.
pub fn write_plan(summary: &[u8], out: &mut Vec<u8>) {
    let mut rest = summary;
    loop {
        let word = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
        let length = rest.iter().take_while(|byte| word(byte)).count();
        let (name, after) = rest.split_at(length);
        out.extend_from_slice(if STAGES.binary_search(&name).is_ok() { name } else { UNPROVEN });
        rest = after;
        if let Some(pattern) = rest.strip_prefix(b" {") {
            let Some(length) = write_pattern(pattern, out) else { return };
            rest = &pattern[length..];
        }
        match rest {
            [b',', b' ', more @ ..] => {
                out.extend_from_slice(b", ");
                rest = more;
            }
            [b',', more @ ..] => {
                out.push(b',');
                rest = more;
            }
            [] => return,
            _ => return out.extend_from_slice(b" ?"),
        }
    }
}

/// Writes a key pattern; `text` begins inside of it. Returns its length with the closing brace; `None` if it is
/// no key pattern.
fn write_pattern(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    out.extend_from_slice(b" {");
    let mut at = 0;
    loop {
        match text.get(at..) {
            Some([b' ', b'}', ..]) => {
                out.extend_from_slice(b" }");
                return Some(at + 2);
            }
            Some([b'}', ..]) => {
                out.push(b'}');
                return Some(at + 1);
            }
            Some([b',', b' ', ..]) if at > 0 => {
                out.push(b',');
                at += 1;
            }
            Some([b' ', ..]) => {}
            _ => {
                out.extend_from_slice(b" ? }");
                return None;
            }
        }
        let field = &text[at + 1..];
        let colon = memchr::memmem::find(field, b": ");
        let Some(colon) =
            colon.filter(|colon| !field[..*colon].iter().any(|byte| matches!(byte, b'"' | b'{' | b'}')))
        else {
            out.extend_from_slice(b" ? }");
            return None;
        };
        let value = &field[colon + 2..];
        let length = value.iter().position(|byte| matches!(byte, b',' | b' ' | b'}')).unwrap_or(value.len());
        let shown = &value[..length];
        let inside = shown.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
        let is_direction = !shown.is_empty()
            && shown.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.'));
        out.push(b' ');
        out.extend_from_slice(&field[..colon + 2]);
        let is_known = is_direction || inside.is_some_and(is_index_type);
        out.extend_from_slice(if is_known { shown } else { UNPROVEN });
        at += 1 + colon + 2 + length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_can_be_searched() {
        assert!(STAGES.is_sorted());
    }

    #[test]
    fn plans_are_shown_and_nothing_else() {
        let written = |text: &str| {
            let mut out = Vec::new();
            write_plan(text.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        for plan in [
            "COLLSCAN",
            "IXSCAN { a: 1, b.c: -1.0 }",
            "IXSCAN { a: 1.0 }, IXSCAN { at: 1.0 }",
            "EXPRESS_IXSCAN { _id: 1 },EXPRESS_UPDATE",
            "TEXT_MATCH { _fts: \"text\", _ftsx: 1 }",
            "IXSCAN { loc: \"2dsphere\" }, COLLSCAN",
            "IXSCAN { $_path: 1, a b: 1 }",
            "COUNT_SCAN {}",
        ] {
            assert_eq!(written(plan), plan);
        }
        assert_eq!(written("SECRET"), "?");
        assert_eq!(written("IXSCAN { a: \"SECRET\" }, COLLSCAN"), "IXSCAN { a: ? }, COLLSCAN");
        assert_eq!(written("COLLSCAN SECRET"), "COLLSCAN ?");
        assert_eq!(written("IXSCAN { \"SECRET\" }"), "IXSCAN { ? }");
        assert_eq!(written("IXSCAN SECRET { a: 1 }"), "IXSCAN ?");
    }
}
