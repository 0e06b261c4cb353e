//! A DNS server in this process, for two zones: it takes signed updates over TCP.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use hickory_proto::{
    op::{Message, OpCode, ResponseCode},
    rr::{DNSClass, Name, RecordType, TSigResponseContext, TSigner, rdata::tsig::TsigAlgorithm},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

pub const ZONE: &str = "example.org";
/// The other zone. Its names could also be written into [`ZONE`].
pub const OTHER_ZONE: &str = "dev.example.org";
pub const KEY: &str = "extension-key";
pub const SECRET: &[u8] = b"a secret of thirty-two bytes ...";

/// The values of each zone, name and type, and who may write them.
#[derive(Default)]
struct State {
    records: BTreeMap<(String, String, RecordType), Vec<String>>,
    revoked: bool,
    refuses: bool,
}

/// A DNS server. Clones refer to the same one.
#[derive(Clone)]
pub struct DnsServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl DnsServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        server
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Revokes the key.
    pub fn revoke(&self) {
        self.lock().revoked = true;
    }

    /// Refuses all updates, although they are signed, or no longer.
    pub fn refuse(&self, refuses: bool) {
        self.lock().refuses = refuses;
    }

    /// Returns the values of a name and type in [`ZONE`].
    pub fn values(&self, name: &str, record_type: RecordType) -> Vec<String> {
        let key = (format!("{ZONE}."), format!("{name}."), record_type);
        self.lock().records.get(&key).cloned().unwrap_or_default()
    }

    /// Returns zone and name of all records.
    pub fn all(&self) -> Vec<String> {
        self.lock().records.keys().map(|(zone, name, _)| format!("{zone} {name}")).collect()
    }

    async fn serve(self, mut stream: TcpStream) {
        while let Ok(length) = stream.read_u16().await {
            let mut request = vec![0; length.into()];
            if stream.read_exact(&mut request).await.is_err() {
                return;
            }
            let answer = self.answer(&request);
            stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    }

    fn answer(&self, request: &[u8]) -> Vec<u8> {
        let message = Message::from_vec(request).unwrap();
        let signature = message.signature.clone().expect("the update is signed");
        let (id, time) = (message.id, signature.data.time);
        let key =
            TSigner::new(SECRET.to_vec(), TsigAlgorithm::HmacSha256, Name::from_ascii(KEY).unwrap(), 300).unwrap();
        let context = if self.lock().revoked || signature.name != *key.signer_name() {
            Err(TSigResponseContext::unknown_key(id, time, signature.name.clone()))
        } else {
            match key.verify_message_byte(request, None, true) {
                Ok((mac, ..)) => Ok(TSigResponseContext::new(id, time, key, mac, None)),
                Err(_) => Err(TSigResponseContext::bad_signature(id, time, key)),
            }
        };
        let (code, context) = match context {
            Ok(context) => (self.update(&message), context),
            Err(context) => (ResponseCode::NotAuth, context),
        };
        let mut response = Message::error_msg(id, OpCode::Update, code);
        let signature = context.sign(&response.to_vec().unwrap()).unwrap();
        response.set_signature(signature);
        response.to_vec().unwrap()
    }

    /// Carries out an update (RFC 2136, section 3.4): deletions of all records of a type, and additions.
    fn update(&self, message: &Message) -> ResponseCode {
        let mut state = self.lock();
        if state.refuses {
            return ResponseCode::Refused;
        }
        let zone = message.queries[0].name.to_ascii();
        if ![ZONE, OTHER_ZONE].iter().any(|known| zone == format!("{known}.")) {
            return ResponseCode::NotAuth;
        }
        for record in &message.authorities {
            let key = (zone.clone(), record.name.to_ascii(), record.record_type());
            match record.dns_class {
                DNSClass::ANY => drop(state.records.remove(&key)),
                _ => state.records.entry(key).or_default().push(format!("{} {}", record.ttl, record.data)),
            }
        }
        ResponseCode::NoError
    }
}
