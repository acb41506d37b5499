//! Just enough of the Redis protocol to give a test's server orders, beside whatever client is being tested.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A server that has not answered by now does not.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends `commands` one after another on a fresh connection; returns the last answer.
///
/// # Errors
/// What the connection reports, and an error that the server answers, as text.
pub(super) fn ask(port: u16, commands: &[Vec<&[u8]>]) -> Result<String, String> {
    let failed = |e: io::Error| format!("port {port}: {e}");
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut reader = BufReader::new(stream.try_clone().map_err(failed)?);
    let mut writer = stream;
    let mut last = String::new();
    for command in commands {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for part in command {
            bytes.extend(format!("${}\r\n", part.len()).as_bytes());
            bytes.extend_from_slice(part);
            bytes.extend(b"\r\n");
        }
        writer.write_all(&bytes).map_err(failed)?;
        last = answer(&mut reader).map_err(failed)??;
    }
    Ok(last)
}

/// One answer; the parts of an array are lines of text, nothing is an empty line.
fn answer(reader: &mut impl BufRead) -> io::Result<Result<String, String>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let Some((kind, rest)) = line.split_at_checked(1) else { return Err(io::ErrorKind::InvalidData.into()) };
    let number = || rest.parse::<i64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
    match kind {
        "+" | ":" => Ok(Ok(rest.to_owned())),
        "-" => Ok(Err(rest.to_owned())),
        "$" => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(Ok(String::new())) };
            let mut bytes = vec![0; length + 2];
            reader.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(Ok(String::from_utf8_lossy(&bytes).into_owned()))
        }
        "*" => {
            let parts: io::Result<Result<Vec<String>, String>> = (0..number()?).map(|_| answer(reader)).collect();
            Ok(parts?.map(|parts| parts.join("\n")))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
