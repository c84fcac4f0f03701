//! The lab's workload through the official Rust driver. Usage: lab-driver URI OUTPUT [SUFFIX]; see ../../README.md.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};

use futures_util::TryStreamExt;
use mongodb::bson::raw::cstr;
use mongodb::bson::{Bson, Document, Regex, doc};
use mongodb::error::ErrorKind;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::{ClientOptions, Hint, IndexOptions};
use mongodb::{Client, Cursor, Database, IndexModel};
use serde_json::{Map, Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Writes one line for each command as it ends.
struct Recorder {
    output: File,
    started: HashMap<i32, (String, bool)>,
}

impl Recorder {
    fn handle(&mut self, app: &str, event: CommandEvent) {
        match event {
            CommandEvent::Started(event) => {
                let key = if event.command_name == "getMore" { "collection" } else { &event.command_name };
                let namespace = match event.command.get_str(key) {
                    Ok(collection) => format!("{}.{collection}", event.db),
                    Err(_) => event.db,
                };
                let write_concern = event.command.get_document("writeConcern").ok();
                let unacknowledged = write_concern.and_then(|wc| wc.get("w")).and_then(integer) == Some(0);
                self.started.insert(event.request_id, (namespace, unacknowledged));
            }
            CommandEvent::Succeeded(event) => {
                let facts = facts(&event.command_name, &event.reply);
                let server = event.connection.address.to_string();
                self.write(app, event.request_id, &event.command_name, event.duration, "ok", facts, server);
            }
            CommandEvent::Failed(event) => {
                let mut facts = Map::new();
                if let ErrorKind::Command(error) = event.failure.kind.as_ref() {
                    facts.insert("code".into(), json!(error.code));
                }
                let server = event.connection.address.to_string();
                self.write(
                    app,
                    event.request_id,
                    &event.command_name,
                    event.duration,
                    "failed",
                    facts,
                    server,
                );
            }
            _ => {}
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn write(
        &mut self,
        app: &str,
        request_id: i32,
        command: &str,
        duration: std::time::Duration,
        outcome: &str,
        facts: Map<String, Value>,
        server: String,
    ) {
        let (namespace, unacknowledged) = self.started.remove(&request_id).unwrap_or_default();
        let mut line = json!({
            "driver": "rust", "client": app, "request_id": request_id as u32, "command": command, "ns": namespace,
            "us": duration.as_micros() as u64, "outcome": outcome, "server": server,
        });
        let object = line.as_object_mut().expect("an object literal");
        object.extend(facts);
        if unacknowledged {
            object.insert("unacknowledged".into(), json!(true));
        }
        writeln!(self.output, "{line}").expect("the output can be written");
    }
}

fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        Bson::Double(n) => Some(*n as i64),
        _ => None,
    }
}

fn facts(command: &str, reply: &Document) -> Map<String, Value> {
    let mut facts = Map::new();
    if let Ok(cursor) = reply.get_document("cursor") {
        facts.insert("cursor".into(), json!(cursor.get("id").and_then(integer)));
        let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"));
        facts.insert("docs".into(), json!(batch.map(Vec::len).ok()));
    }
    if matches!(command, "insert" | "update" | "delete") {
        for (field, name) in [("n", "n"), ("nModified", "n_modified")] {
            if let Some(n) = reply.get(field).and_then(integer) {
                facts.insert(name.into(), json!(n));
            }
        }
    }
    if let Ok(upserted) = reply.get_array("upserted") {
        facts.insert("n_upserted".into(), json!(upserted.len()));
    }
    if let Ok(errors) = reply.get_array("writeErrors") {
        let codes = errors.iter().filter_map(|error| integer(error.as_document()?.get("code")?));
        facts.insert("write_errors".into(), codes.collect());
    }
    facts
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [uri, path, rest @ ..] = arguments.as_slice() else {
        return Err("usage: lab-driver URI OUTPUT [SUFFIX]".into());
    };
    let recorder = Arc::new(Mutex::new(Recorder { output: File::create(path)?, started: HashMap::new() }));
    let name = format!("lab_rust{}", rest.concat());

    let main = connect(uri, "rust-main", 10, &recorder).await?;
    let db = main.database(&name);
    db.drop().await?;
    basics(&db).await?;
    writes(&db).await?;
    errors(&db).await;
    cursors(&db).await?;
    main.shutdown().await;

    let pool = connect(uri, "rust-pool", 4, &recorder).await?;
    let db = pool.database(&name);
    futures_util::future::try_join_all((0..6).map(|number| worker(&db, number))).await?;
    pool.shutdown().await;
    Ok(())
}

async fn connect(
    uri: &str,
    app: &'static str,
    pool: u32,
    recorder: &Arc<Mutex<Recorder>>,
) -> Outcome<Client> {
    let mut options = ClientOptions::parse(uri).await?;
    options.app_name = Some(app.into());
    options.max_pool_size = Some(pool);
    options.retry_writes = Some(false);
    let recorder = recorder.clone();
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        recorder.lock().expect("no handler panicked").handle(app, event);
    }));
    Ok(Client::with_options(options)?)
}

async fn drain(cursor: mongodb::error::Result<Cursor<Document>>) -> mongodb::error::Result<Vec<Document>> {
    cursor?.try_collect().await
}

async fn basics(db: &Database) -> Outcome<()> {
    let items = db.collection::<Document>("items");
    items.insert_one(doc! { "_id": 0, "kind": "single" }).await?;
    let many = (1..=150).map(
        |i| doc! { "_id": i, "n": i % 7, "tag": format!("t{}", i % 5), "sub": { "x": i, "y": [i, i + 1] } },
    );
    items.insert_many(many).await?;
    // In a collection of their own: the server reads whole collections, so they would slow down everything else.
    let large = db.collection::<Document>("large");
    large.insert_many((0..8).map(|i| doc! { "_id": 1000 + i, "pad": "x".repeat(400_000) })).await?;
    let ids: Vec<i32> = (0..40).collect();
    for filter in [
        doc! { "n": 3 },
        doc! { "n": { "$gte": 2 }, "tag": "t1" },
        doc! { "tag": "t1", "n": { "$gte": 2 } },
        doc! { "_id": { "$in": &ids[..1] } },
        doc! { "_id": { "$in": &ids[..5] } },
        doc! { "_id": { "$in": &ids } },
        doc! { "$or": [{ "n": 1 }, { "tag": "t2" }] },
        doc! { "tag": Regex { pattern: cstr!("^t[12]").into(), options: cstr!("").into() } },
    ] {
        drain(items.find(filter).await).await?;
    }
    drain(large.find(doc! { "_id": { "$gte": 1000 } }).await).await?;
    let sorted =
        items.find(doc! { "n": 3 }).projection(doc! { "tag": 1 }).sort(doc! { "_id": -1 }).skip(2).limit(5);
    drain(sorted.await).await?;
    drain(items.find(doc! { "_id": { "$lt": 100 } }).batch_size(30).await).await?;
    items.find_one(doc! { "_id": "absent" }).await?;
    items.count_documents(doc! { "n": 2 }).await?;
    items.estimated_document_count().await?;
    items.distinct("tag", doc! { "n": { "$lt": 5 } }).await?;
    let stages = [
        doc! { "$match": { "n": { "$gt": 1 } } },
        doc! { "$group": { "_id": "$tag", "c": { "$sum": "$n" } } },
        doc! { "$sort": { "_id": 1 } },
    ];
    drain(items.aggregate(stages).await).await?;
    let keys = doc! { "n": 1, "tag": -1 };
    let name = IndexOptions::builder().name("by_n".to_string()).build();
    items.create_index(IndexModel::builder().keys(keys.clone()).options(name).build()).await?;
    // A hint is part of the shape; whether the server takes it is its own affair.
    let _ = drain(items.find(doc! { "n": 3 }).hint(Hint::Keys(keys)).await).await;
    db.list_collection_names().await?;
    Ok(())
}

async fn writes(db: &Database) -> Outcome<()> {
    let items = db.collection::<Document>("items");
    items.update_one(doc! { "_id": 5 }, doc! { "$set": { "n": 99 }, "$inc": { "hits": 1 } }).await?;
    items.update_one(doc! { "_id": 5 }, doc! { "$set": { "n": 99 } }).await?;
    items.update_many(doc! { "tag": "t3" }, doc! { "$set": { "seen": true } }).await?;
    items.replace_one(doc! { "_id": "new" }, doc! { "kind": "replaced" }).upsert(true).await?;
    items.find_one_and_update(doc! { "_id": 6 }, doc! { "$inc": { "n": 1 } }).await?;
    items.find_one_and_delete(doc! { "_id": 8 }).await?;
    items.delete_one(doc! { "_id": 9 }).await?;
    items.delete_many(doc! { "n": 4 }).await?;
    Ok(())
}

/// What is meant to fail: that it does, or not, is the server's affair and stands in the record.
async fn errors(db: &Database) {
    let items = db.collection::<Document>("items");
    let _ = items.insert_one(doc! { "_id": 1 }).await;
    let _ =
        items.insert_many([doc! { "_id": "b4" }, doc! { "_id": 1 }, doc! { "_id": 2 }]).ordered(false).await;
    let _ = db.run_command(doc! { "noSuchCommand": 1 }).await;
    let _ = items.update_one(doc! { "_id": 2 }, doc! { "$noSuchOperator": { "a": 1 } }).await;
    let _ = drain(items.aggregate([doc! { "$noSuchStage": {} }]).await).await;
}

async fn cursors(db: &Database) -> Outcome<()> {
    let mut cursor = db.collection::<Document>("items").find(doc! {}).batch_size(10).await?;
    for _ in 0..15 {
        cursor.try_next().await?;
    }
    // Dropping a cursor half way sends killCursors in the background; the ping gives it time to go out.
    drop(cursor);
    for _ in 0..3 {
        db.run_command(doc! { "ping": 1 }).await?;
    }
    Ok(())
}

async fn worker(db: &Database, number: i32) -> mongodb::error::Result<()> {
    let pool = db.collection::<Document>("pool");
    for turn in 0..18 {
        pool.insert_one(doc! { "w": number, "t": turn }).await?;
        drain(pool.find(doc! { "w": number, "t": { "$lte": turn } }).batch_size(10).await).await?;
        pool.update_one(doc! { "w": number, "t": turn }, doc! { "$set": { "done": true } }).await?;
    }
    Ok(())
}
