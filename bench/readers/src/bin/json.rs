//! How quickly JSON readers visit every element of log lines, all of them typed, none building a tree: ours beside
//! serde_json, simd-json and sonic-rs. `sonar-json-bench LOG...`, plain or gzip; see `bench/readers.py`.

use std::fmt;
use std::io::Read;
use std::time::{Duration, Instant};

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use sonar_decode::bson::{self, BsonValue, ElementKind, ElementStep, Key, Opened};
use sonar_decode::syntax::json;

/// What a visit of a line comes to: every key and value is looked at.
#[derive(Default, Debug, PartialEq, Eq, Clone, Copy)]
struct Sums {
    keys: u64,
    key_bytes: u64,
    numbers: u64,
    number_sum: i64,
    texts: u64,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.key_bytes += other.key_bytes;
        self.numbers += other.numbers;
        self.number_sum = self.number_sum.wrapping_add(other.number_sum);
        self.texts += other.texts;
    }
}

/// Ours: what MongoDB writes as `{"$date": …}` is one value, of which no key is reported.
impl bson::Visitor for Sums {
    fn element(&mut self, key: Key<'_>, kind: ElementKind, value: BsonValue<'_>) -> ElementStep {
        self.keys += 1;
        self.key_bytes += key.bytes.len() as u64;
        match (kind, value) {
            (ElementKind::String, _) => self.texts += 1,
            (ElementKind::Int64, BsonValue::Bytes(bytes)) => {
                self.numbers += 1;
                self.number_sum = self
                    .number_sum
                    .wrapping_add(bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes)));
            }
            _ => {}
        }
        ElementStep::Next
    }

    fn open(&mut self, key: Key<'_>, _: bool) -> Opened {
        self.keys += 1;
        self.key_bytes += key.bytes.len() as u64;
        Opened::Enter
    }

    fn close(&mut self) {}
}

impl<'de> Deserialize<'de> for Sums {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Sums;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Sums, E> {
                Ok(Sums::default())
            }
            fn visit_unit<E>(self) -> Result<Sums, E> {
                Ok(Sums::default())
            }
            fn visit_i64<E>(self, number: i64) -> Result<Sums, E> {
                Ok(Sums { numbers: 1, number_sum: number, ..Sums::default() })
            }
            fn visit_u64<E>(self, number: u64) -> Result<Sums, E> {
                Ok(Sums { numbers: 1, number_sum: number as i64, ..Sums::default() })
            }
            fn visit_f64<E>(self, _: f64) -> Result<Sums, E> {
                Ok(Sums { numbers: 1, ..Sums::default() })
            }
            fn visit_str<E>(self, _: &str) -> Result<Sums, E> {
                Ok(Sums { texts: 1, ..Sums::default() })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Sums, A::Error> {
                let mut sums = Sums::default();
                while let Some(one) = seq.next_element::<Sums>()? {
                    sums.add(one);
                }
                Ok(sums)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sums, A::Error> {
                let mut sums = Sums::default();
                while let Some(KeyBytes(length)) = map.next_key()? {
                    sums.keys += 1;
                    sums.key_bytes += length;
                    sums.add(map.next_value::<Sums>()?);
                }
                Ok(sums)
            }
        }
        deserializer.deserialize_any(Each)
    }
}

/// The length of a key, which is borrowed where it can be.
struct KeyBytes(u64);

impl<'de> Deserialize<'de> for KeyBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Length;
        impl Visitor<'_> for Length {
            type Value = KeyBytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_str<E>(self, key: &str) -> Result<KeyBytes, E> {
                Ok(KeyBytes(key.len() as u64))
            }
        }
        deserializer.deserialize_str(Length)
    }
}

/// Rounds; the shortest one counts.
const ROUNDS: u32 = 15;

/// A reader, by its name. `None`: the line is not JSON to it.
type JsonReader = (&'static str, fn(&[u8], &mut Vec<u8>) -> Option<Sums>);

fn main() -> std::io::Result<()> {
    let mut text = Vec::new();
    for path in std::env::args().skip(1) {
        let mut bytes = std::fs::read(&path)?;
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let packed = std::mem::take(&mut bytes);
            flate2::read::MultiGzDecoder::new(packed.as_slice()).read_to_end(&mut bytes)?;
        }
        text.extend_from_slice(&bytes);
    }
    // Longer than the caches, and not much longer: the short recordings several times.
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{")).collect();
    let lines = lines.repeat((16 << 20) / text.len().max(1) + 1);
    let size: usize = lines.iter().map(|line| line.len()).sum();
    let readers: [JsonReader; 5] = [
        ("ours", |line, _| {
            let mut sums = Sums::default();
            json::walk(line, 0, &mut sums).ok().map(|_| sums)
        }),
        ("serde_json", |line, _| serde_json::from_slice(line).ok()),
        ("sonic-rs", |line, _| sonic_rs::from_slice(line).ok()),
        ("simd-json", |line, copy| {
            // It changes what it reads, and the line is needed again.
            copy.clear();
            copy.extend_from_slice(line);
            simd_json::serde::from_slice(copy).ok()
        }),
        ("serde_json, nothing visited", |line, _| {
            serde_json::from_slice::<IgnoredAny>(line).ok().map(|_| Sums::default())
        }),
    ];
    let mut best = [Duration::MAX; 5];
    let mut sums = [Sums::default(); 5];
    for _ in 0..ROUNDS {
        for ((best, sums), (name, read)) in best.iter_mut().zip(&mut sums).zip(&readers) {
            let (begin, mut all, mut copy) = (Instant::now(), Sums::default(), Vec::new());
            for line in &lines {
                let Some(one) = read(line, &mut copy) else {
                    panic!("{name} cannot read {}", String::from_utf8_lossy(line));
                };
                all.add(one);
            }
            (*best, *sums) = ((*best).min(begin.elapsed()), all);
        }
    }
    assert!(sums[1] == sums[2] && sums[2] == sums[3], "they read different things: {sums:?}");
    println!("{} lines, {:.0} MB; the best of {ROUNDS} rounds in turns", lines.len(), size as f64 / 1e6);
    let ours = best[0].as_secs_f64();
    for (best, (name, _)) in best.iter().zip(&readers) {
        let seconds = best.as_secs_f64();
        println!("  {:>6.0} MB/s, {:.2} times our time: {name}", size as f64 / seconds / 1e6, seconds / ours);
    }
    Ok(())
}
