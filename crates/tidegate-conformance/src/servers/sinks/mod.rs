//! Where alerts go, for tests: a small mail server and a small web server, in threads of the test. They do as they are told
//! (refuse, hang, break off), and remember what they got.

mod hook;
mod mail;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub use hook::{HookAnswer, HookSink, Posted};
pub use mail::{MailSink, MailSinkSetup, Received};

/// Nobody is waited for longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection, with TLS or without.
trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// A line without its end; `None` at the end of the connection.
fn line(wire: &mut dyn Wire) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while wire.read(&mut byte)? == 1 {
        if byte[0] == b'\n' {
            let text = String::from_utf8_lossy(&bytes);
            return Ok(Some(text.strip_suffix('\r').unwrap_or(&text).to_owned()));
        }
        bytes.push(byte[0]);
    }
    Ok(None)
}

/// TLS with the certificate that `make_certificates` made in `folder`.
fn tls_of(folder: &Path) -> Arc<ServerConfig> {
    let read = |name: &str| fs::read(folder.join(name)).expect("the certificates were made");
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(&read("server.crt")).collect::<Result<_, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&read("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("ring has them");
    Arc::new(config.with_no_client_auth().with_single_cert(chain, key).expect("they belong together"))
}

fn wrapped(config: &Arc<ServerConfig>, stream: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).expect("a sound configuration"), stream)
}

/// Listens on a free port of the loopback; each connection gets a thread. Dropped, it takes no more.
struct Listening {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl Listening {
    fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        Self::on(listener, serve)
    }

    fn on(listener: TcpListener, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().expect("it is bound");
        let stopped = Arc::new(AtomicBool::new(false));
        let (seen, serve) = (Arc::clone(&stopped), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                let serve = Arc::clone(&serve);
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                thread::spawn(move || serve(stream));
            }
        });
        Self { address, stopped }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the listener, which then sees it.
        let _ = TcpStream::connect(self.address);
    }
}
