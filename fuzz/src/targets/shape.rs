//! Finds with a filter built from the input: the shape is the same when every order without a meaning is
//! turned round, both ids are the same however the message is cut, and nothing panics.

use crate::{Input, Seen, decode, message};
use sonar_decode::testing::{Conversation, ConversationEnd};

const FIELDS: [&str; 6] = ["a", "b", "a.b", "items.0.n", "users.507f1f77bcf86cd799439011.x", "_id"];
const COMPARISONS: [&str; 5] = ["$gt", "$lte", "$eq", "$ne", "$size"];

enum Node {
    Number(i32),
    Text(u8),
    Null,
    Document(Vec<(String, Node)>),
    Array(Vec<Node>),
}

/// Takes an input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let mss = usize::from(input.byte()) + 1;
    let filter = filter(&mut input, 0);
    let as_sent = find(&filter, false);
    let whole = in_packets_of(&as_sent, 4_096);
    assert_eq!(whole.len(), 1);
    assert_eq!(whole, in_packets_of(&as_sent, mss));
    let turned = in_packets_of(&find(&filter, true), 4_096);
    assert_eq!(whole[0].shape_id, turned[0].shape_id, "{} {}", whole[0].rest, turned[0].rest);
}

fn in_packets_of(request: &[u8], mss: usize) -> Vec<Seen> {
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017").with_mss(mss);
    talk.handshake().send(ConversationEnd::Client, request);
    talk.send(
        ConversationEnd::Server,
        &message(2, 1, 2013, b"\0\0\0\0\0\x11\0\0\0\x01ok\0\0\0\0\0\0\0\xf0\x3f\0"),
    );
    talk.close();
    decode(&talk.packets)
}

fn find(filter: &Node, turned: bool) -> Vec<u8> {
    let mut body = vec![0; 9];
    body.extend(b"\x02find\0\x02\0\0\0c\0\x03filter\0");
    write(filter, turned, &mut body);
    body.extend(b"\x02$db\0\x02\0\0\0d\0\0");
    let len = (body.len() as u32 - 5).to_le_bytes();
    body[5..9].copy_from_slice(&len);
    message(1, 0, 2013, &body)
}

/// A document of conditions on fields, and of `$or`, `$and`, `$nor`.
fn filter(input: &mut Input<'_>, depth: usize) -> Node {
    let count = usize::from(input.byte() % 5);
    Node::Document(
        (0..count)
            .map(|_| {
                let choice = input.byte();
                if choice >= 0xc0 && depth < 6 {
                    let children = (0..=input.byte() % 3).map(|_| filter(input, depth + 1)).collect();
                    let key = ["$or", "$and", "$nor"][usize::from(choice) % 3];
                    (key.to_owned(), Node::Array(children))
                } else {
                    let key = FIELDS[usize::from(choice) % FIELDS.len()];
                    (key.to_owned(), condition(input, depth))
                }
            })
            .collect(),
    )
}

fn condition(input: &mut Input<'_>, depth: usize) -> Node {
    match input.byte() % 8 {
        0 => Node::Document(
            (0..=input.byte() % 3)
                .map(|_| {
                    let key = COMPARISONS[usize::from(input.byte()) % COMPARISONS.len()];
                    (key.to_owned(), literal(input, depth + 1))
                })
                .collect(),
        ),
        1 => Node::Document(vec![(
            "$in".to_owned(),
            Node::Array((0..input.byte() % 5).map(|_| literal(input, depth + 1)).collect()),
        )]),
        2 if depth < 6 => Node::Document(vec![("$elemMatch".to_owned(), filter(input, depth + 1))]),
        _ => literal(input, depth),
    }
}

fn literal(input: &mut Input<'_>, depth: usize) -> Node {
    match input.byte() % 5 {
        0 => Node::Number(i32::from(input.byte())),
        1 => Node::Text(input.byte()),
        2 => Node::Null,
        3 if depth < 6 => Node::Array((0..input.byte() % 4).map(|_| literal(input, depth + 1)).collect()),
        4 if depth < 6 => Node::Document(
            (0..input.byte() % 3).map(|n| (format!("k{n}"), literal(input, depth + 1))).collect(),
        ),
        _ => Node::Number(1),
    }
}

fn write(node: &Node, turned: bool, out: &mut Vec<u8>) {
    let element = |key: &str, node: &Node, out: &mut Vec<u8>| {
        out.push(match node {
            Node::Number(_) => 0x10,
            Node::Text(_) => 0x02,
            Node::Null => 0x0a,
            Node::Document(_) => 0x03,
            Node::Array(_) => 0x04,
        });
        out.extend(key.bytes());
        out.push(0);
        write(node, turned, out);
    };
    match node {
        Node::Number(number) => out.extend(number.to_le_bytes()),
        Node::Text(byte) => out.extend([3, 0, 0, 0, byte & 0x7f, b'x', 0]),
        Node::Null => {}
        Node::Document(elements) => in_document(out, |out| {
            let mut elements: Vec<_> = elements.iter().collect();
            if turned {
                elements.reverse();
            }
            elements.into_iter().for_each(|(key, node)| element(key, node, out));
        }),
        Node::Array(nodes) => in_document(out, |out| {
            let mut nodes: Vec<_> = nodes.iter().collect();
            if turned {
                nodes.reverse();
            }
            nodes.into_iter().enumerate().for_each(|(n, node)| element(&n.to_string(), node, out));
        }),
    }
}

fn in_document(out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 4]);
    content(out);
    out.push(0);
    let len = ((out.len() - start) as u32).to_le_bytes();
    out[start..start + 4].copy_from_slice(&len);
}
