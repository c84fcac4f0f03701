//! Files that no command reads: each is named, with the way to turn it into what is read.

use crate::support::*;

/// What each of these files is said to be.
fn files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let bson = |document: &bson::Document| document.to_vec().unwrap().repeat(3);
    let zip =
        |name: &str| [b"PK\x03\x04\x14\0\0\0\x08\0".as_slice(), &[0; 20], name.as_bytes(), &[0; 50]].concat();
    let elf = |kind: u8| [b"\x7fELF\x02\x01\x01\0".as_slice(), &[0; 8], &[kind, 0], &[0; 50]].concat();
    let docker = [&[0, 0, 0, 40, 0x0a, 6], b"stdout\x10\x80".as_slice(), &[1; 40]].concat();
    let zeros = |magic: &[u8]| [magic, &[0; 100]].concat();
    let orders = bson::doc! {"_id": 1, "customer": "x", "items": [{"sku": "a"}]};
    let oplog = bson::doc! {"ts": bson::Timestamp { time: 5, increment: 1 }, "v": 2, "op": "i", "ns": "shop.orders", "o": {"a": 1}};
    vec![
        ("logs.zip", zip("mongod.log"), "a zip archive; unpack it first: `unzip FILE`"),
        ("lines.xlsx", zip("[Content_Types].xml"), "a spreadsheet; save it as CSV"),
        ("logs.7z", zeros(b"7z\xbc\xaf\x27\x1c"), "`7z x FILE`"),
        ("mongod.log.xz", zeros(b"\xfd7zXZ\0"), "`xz -dk FILE`"),
        ("mongod.log.bz2", zeros(b"BZh91AY&SY"), "`bunzip2 -k FILE`"),
        ("logs.rar", zeros(b"Rar!\x1a\x07\x01\0"), "`unrar x FILE`"),
        ("mongod.log.lz4", zeros(&[0x04, 0x22, 0x4d, 0x18]), "`lz4 -d FILE`"),
        ("system.evtx", zeros(b"ElfFile\0"), "an event log of Windows"),
        ("logs.parquet", zeros(b"PAR1"), "a Parquet file"),
        ("orders.bson", bson(&orders), "a dump of BSON documents that are no profile"),
        ("oplog.rs.bson", bson(&oplog), "a dump of the oplog"),
        (
            "orders.metadata.json",
            br#"{"options":{},"indexes":[{"v":2,"key":{"_id":1},"name":"_id_"}],"uuid":"0a","collectionName":"orders","type":"collection"}"#.to_vec(),
            "the metadata of a collection in a dump",
        ),
        ("core.7", elf(4), "a core dump of a process"),
        ("mongod", elf(3), "a program or a library"),
        ("perf.data", zeros(b"PERFILE2"), "a recording of perf"),
        ("compass.sqlite", zeros(b"SQLite format 3\0"), "a database of SQLite"),
        ("report.pdf", zeros(b"%PDF-1.7\n"), "a PDF"),
        ("screen.jpg", zeros(&[0xff, 0xd8, 0xff, 0xe0]), "an image"),
        ("screen.png", zeros(b"\x89PNG\r\n\x1a\n"), "an image"),
        ("container.log", docker, "a log of docker's `local` driver"),
        ("system.journal", zeros(b"LPKSHHRH"), "journalctl --file FILE"),
        ("table.xls", zeros(&[0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1]), "a document of Office"),
        ("page.html", b"<!DOCTYPE html>\n<html></html>\n".to_vec(), "a web page"),
        (
            "mongod.conf",
            b"# mongod.conf\nstorage:\n  dbPath: /var/lib/mongodb\nsystemLog:\n  path: /var/log/mongod.log\n".to_vec(),
            "a configuration file of a server",
        ),
        (
            "mongostat.txt",
            b"insert query update delete getmore command dirty used flushes vsize  res qrw arw net_in net_out conn time\n    *0    *0     *0     *0       0     1|0\n".to_vec(),
            "output of mongostat",
        ),
    ]
}

#[test]
fn each_file_that_is_not_read_is_named_with_what_to_do() {
    let folder = Folder::new("named-files");
    let readers = [
        "logs report",
        "report",
        "profiler report",
        "queries --read",
        "compare",
        "ftdc report",
        "io report",
        "stacks compare",
    ];
    for (name, content, expected) in files() {
        let compressed = zstd::encode_all(content.as_slice(), 1).unwrap();
        for (name, content) in [(name.to_owned(), content), (format!("{name}.zst"), compressed)] {
            let file = folder.file(&name, &content);
            // Recordings of accesses and results of stacks are not compressed.
            for reader in readers
                .into_iter()
                .filter(|reader| !["io report", "stacks compare"].contains(reader) || !name.ends_with(".zst"))
            {
                let mut run = program(reader.split(' '));
                run.arg(&file);
                if reader.ends_with("compare") {
                    run.arg(&file);
                }
                let output = run.output().unwrap();
                let told = text(&output.stderr);
                assert_eq!(output.status.code(), Some(1), "{reader} {name}: {told}");
                assert!(told.contains(expected), "{reader} {name}: {told}");
                assert!(told.contains(&name), "{reader} {name}: {told}");
                assert!(!told.contains("panicked") && !told.contains("`, not "), "{reader} {name}: {told}");
            }
        }
    }
}

#[test]
fn a_compressed_capture_is_read() {
    let folder = Folder::new("compressed-capture");
    let capture = zstd::encode_all(unpacked("mongod-4.0-mixed").as_slice(), 1).unwrap();
    let file = folder.file("wire.pcap.zst", &capture);
    let output = read(&file, "--json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(output.stdout, read(&recording("mongod-4.0-mixed"), "--json").stdout);
}

#[test]
fn a_folder_is_named_with_what_to_read_in_it() {
    let folder = Folder::new("named-folders");
    let make = |name: &str, files: &[&str]| {
        let path = folder.path(name);
        for file in files {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, b"").unwrap();
        }
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    for (path, expected) in [
        (
            make("shop", &["orders.bson", "orders.metadata.json", "system.profile.bson"]),
            "shop/system.profile.bson`",
        ),
        (
            make("packed", &["system.profile.bson.gz", "orders.metadata.json.gz"]),
            "packed/system.profile.bson.gz`",
        ),
        (make("other", &["orders.bson"]), "a folder of mongodump without a profile"),
        (
            make("dump", &["shop/orders.bson", "shop/orders.metadata.json"]),
            "a folder of mongodump without a profile",
        ),
        (make("dumps", &["a/orders.bson", "shop/system.profile.bson"]), "dumps/shop/system.profile.bson`"),
        (make("zipped", &["shop/orders.bson.gz"]), "a folder of mongodump without a profile"),
        (make("db", &["WiredTiger.wt", "diagnostic.data/metrics.interim"]), "the data folder of a server"),
        (make("diagnostic.data", &["metrics.interim"]), "mongosonar ftdc report"),
        (make("some", &["a.txt"]), "name the files in it"),
    ] {
        for reader in ["logs report", "report", "profiler report", "queries --read"] {
            let output = program(reader.split(' ')).arg(&path).output().unwrap();
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{reader} {}: {told}", path.display());
            assert!(told.contains(expected), "{reader} {}: {told}", path.display());
        }
    }
}
