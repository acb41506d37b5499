//! Plain questions to one server.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, Value};

use crate::connect::RedisResult;

/// Runs commands in one round trip; each has an answer of its own. None have none: the client would take that for a failure.
pub(crate) async fn all(
    connection: &mut MultiplexedConnection,
    commands: &[Cmd],
) -> RedisResult<Vec<RedisResult<Value>>> {
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command.clone());
    }
    let values = connection.req_packed_commands(&pipeline, 0, commands.len()).await?;
    Ok(values.into_iter().map(Value::extract_error).collect())
}

/// A command of words.
pub(crate) fn command(words: &[&str]) -> Cmd {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command
}
