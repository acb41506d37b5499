//! What is read of answers.

use redis::Value;
use tidegate_core::watch::{Client, SlowCommand};

/// Clients that are kept of a list.
const CLIENTS: usize = 8;
/// Longest text of a command, a name or an address that is shown, characters.
const SHOWN: usize = 120;

fn bytes(value: &Value) -> &[u8] {
    match value {
        Value::BulkString(bytes) => bytes,
        Value::SimpleString(text) => text.as_bytes(),
        _ => b"",
    }
}

pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::VerbatimString { text, .. } => text.clone(),
        value => String::from_utf8_lossy(bytes(value)).into_owned(),
    }
}

/// Bytes as people may see them: escaped, and no longer than is of use.
pub(super) fn shown(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes.iter().take(SHOWN) {
        match byte {
            b'"' | b'\'' => out.push(char::from(*byte)),
            byte => out.extend(std::ascii::escape_default(*byte).map(char::from)),
        }
    }
    if bytes.len() > SHOWN {
        out.push_str("..");
    }
    out
}

/// The value of `CONFIG GET name`.
pub(crate) fn setting(answer: &Value, name: &str) -> Option<String> {
    let pairs: Vec<String> = match answer {
        Value::Array(parts) => parts.iter().map(text).collect(),
        Value::Map(pairs) => pairs.iter().flat_map(|(name, value)| [text(name), text(value)]).collect(),
        _ => return None,
    };
    pairs.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone())
}

/// `3600 1 300 100`: seconds and changes.
pub(super) fn save_points(value: &str) -> Vec<(u64, u64)> {
    let numbers: Vec<u64> = value.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// The clients of `CLIENT LIST` with the largest buffers, largest first.
pub(super) fn clients(list: &str) -> Vec<Client> {
    let mut clients: Vec<Client> = list.lines().filter_map(client).collect();
    clients.sort_by_key(|client| std::cmp::Reverse(client.total_bytes.max(client.input_bytes)));
    clients.truncate(CLIENTS);
    clients
}

fn client(line: &str) -> Option<Client> {
    let mut client = Client::default();
    let mut has_total = false;
    for field in line.split(' ') {
        let Some((name, value)) = field.split_once('=') else { continue };
        let number = || value.parse::<u64>().unwrap_or_default();
        match name {
            "addr" => client.address = shown(value.as_bytes()),
            "name" => client.name = shown(value.as_bytes()),
            "cmd" => client.command = shown(value.replace('|', " ").as_bytes()),
            // What was read and not carried out, the room kept for more, and the arguments of a command that is not whole yet.
            "qbuf" | "qbuf-free" | "argv-mem" => client.input_bytes = client.input_bytes.saturating_add(number()),
            "omem" => client.output_bytes = number(),
            "tot-mem" => (client.total_bytes, has_total) = (number(), true),
            _ => {}
        }
    }
    if !has_total {
        client.total_bytes = client.input_bytes.saturating_add(client.output_bytes);
    }
    (!client.address.is_empty()).then_some(client)
}

/// Entries of `SLOWLOG GET`, with their numbers.
pub(super) fn slow(answer: &Value) -> Vec<(i64, SlowCommand)> {
    let Value::Array(entries) = answer else { return Vec::new() };
    entries.iter().filter_map(entry).collect()
}

fn entry(value: &Value) -> Option<(i64, SlowCommand)> {
    let Value::Array(parts) = value else { return None };
    let [Value::Int(id), _, Value::Int(us), Value::Array(words), rest @ ..] = &parts[..] else { return None };
    let words: Vec<&[u8]> = words.iter().map(bytes).collect();
    let command = shown(&words.join(&b' '));
    let client = rest.first().map(|client| shown(bytes(client))).unwrap_or_default();
    let name = rest.get(1).map(|name| shown(bytes(name))).unwrap_or_default();
    let client = if name.is_empty() { client } else { format!("{client} ({name})") };
    Some((*id, SlowCommand { took_us: u64::try_from(*us).unwrap_or_default(), command, client }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn settings() {
        assert_eq!(setting(&Value::Array(vec![bulk("save"), bulk("60 1")]), "save").as_deref(), Some("60 1"));
        assert_eq!(setting(&Value::Array(vec![bulk("save")]), "save"), None);
        assert_eq!(save_points("3600 1 300 100 60"), [(3_600, 1), (300, 100)]);
        assert_eq!(save_points(""), []);
    }

    #[test]
    fn clients_by_their_buffers() {
        let list = "id=3 addr=10.0.0.1:5 laddr=x name= qbuf=26 qbuf-free=20448 argv-mem=10 omem=0 tot-mem=37658 cmd=client|list\n\
                    id=4 addr=10.0.0.2:5 name=imp qbuf=0 qbuf-free=12582912 argv-mem=0 omem=5 tot-mem=12592912 cmd=set\nodd\n\
                    id=5 addr=10.0.0.3:5 name=old qbuf=100 qbuf-free=0 omem=50000 cmd=get\n";
        let clients = clients(list);
        let seen: Vec<_> =
            clients.iter().map(|c| (&c.address[..], &c.command[..], c.input_bytes, c.total_bytes)).collect();
        let want = [
            ("10.0.0.2:5", "set", 12_582_912, 12_592_912),
            ("10.0.0.3:5", "get", 100, 50_100),
            ("10.0.0.1:5", "client list", 20_484, 37_658),
        ];
        assert_eq!(seen, want);
    }

    #[test]
    fn slow_commands_are_shortened_and_escaped() {
        let words =
            Value::Array(vec![bulk("SET"), Value::BulkString(b"a\x00\r\n\xff".to_vec()), bulk(&"v".repeat(300))]);
        let whole =
            Value::Array(vec![Value::Int(7), Value::Int(1), Value::Int(12_000), words, bulk("1.1.1.1:2"), bulk("job")]);
        let answer = Value::Array(vec![whole, Value::Array(vec![Value::Int(1)]), Value::Nil]);
        let slow = slow(&answer);
        assert_eq!((slow.len(), slow[0].0, slow[0].1.took_us), (1, 7, 12_000));
        assert!(slow[0].1.command.starts_with("SET a\\x00\\r\\n\\xff vv") && slow[0].1.command.ends_with("v.."));
        assert_eq!(slow[0].1.client, "1.1.1.1:2 (job)");
    }
}
