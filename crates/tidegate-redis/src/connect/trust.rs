//! What TLS trusts on a connection that the client does not make: the same as on the client's.

use std::io;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::RedisOptions;

/// Trusts the authority of `options`, or the system's if it names none. It reads files.
///
/// # Errors
/// The authority is no certificate, or the system's cannot be read.
pub(crate) fn trust(options: &RedisOptions) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(options.authority.as_deref())? {
        roots.add(certificate).map_err(io::Error::other)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(Arc::new(config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth()))
}

fn certificates(authority: Option<&[u8]>) -> io::Result<Vec<CertificateDer<'static>>> {
    if let Some(pem) = authority {
        return CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(io::Error::other);
    }
    let mut found = rustls_native_certs::load_native_certs();
    match found.errors.pop() {
        Some(e) => Err(io::Error::other(e)),
        None => Ok(found.certs),
    }
}
