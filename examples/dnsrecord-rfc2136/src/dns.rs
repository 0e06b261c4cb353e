//! The DNS server: dynamic updates (RFC 2136) over TCP, signed with TSIG (RFC 8945).

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use billhook_extension::{ActuatorError, Context, ErrorCode};
use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType, TSigner, rdata, rdata::tsig::TsigAlgorithm};
use k8s_openapi::api::core::v1::Secret;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::{net::TcpStream, time::timeout};

/// How long the DNS server may take to answer.
const LIMIT: Duration = Duration::from_secs(10);
/// How far the clocks of both sides may differ, in seconds.
const FUDGE: u16 = 300;

pub(crate) fn misconfigured(problem: impl Into<String>) -> ActuatorError {
    ActuatorError::new(problem).code(ErrorCode::ConfigurationProblem)
}

/// Returns the changes that replace all records of a name and type by these values, in one step.
pub(crate) fn record_set(name: &str, kind: &str, values: &[String], ttl: u32) -> Result<Vec<Record>, ActuatorError> {
    let invalid = |value: &str| misconfigured(format!("{value:?} is no value for the type {kind}"));
    let name = fqdn(name)?;
    let record_type: RecordType = match kind {
        "A" | "AAAA" | "CNAME" | "TXT" => kind.parse()?,
        _ => return Err(misconfigured(format!("type {kind:?}: it must be A, AAAA, CNAME or TXT"))),
    };
    let data = |value: &String| {
        Ok::<_, ActuatorError>(match record_type {
            RecordType::A => RData::A(value.parse().map_err(|_| invalid(value))?),
            RecordType::AAAA => RData::AAAA(value.parse().map_err(|_| invalid(value))?),
            RecordType::CNAME => RData::CNAME(rdata::CNAME(fqdn(value)?)),
            // A character string of a TXT record has at most 255 bytes.
            _ => RData::TXT(rdata::TXT::from_bytes(value.as_bytes().chunks(255).collect())),
        })
    };
    // In the class ANY, an update deletes.
    let mut all = Record::update0(name.clone(), 0, record_type);
    all.dns_class = DNSClass::ANY;
    let record = |value| Ok(Record::from_rdata(name.clone(), ttl, data(value)?));
    std::iter::once(Ok(all)).chain(values.iter().map(record)).collect()
}

/// The server of a zone, and the key for it.
pub(crate) struct Server {
    address: String,
    zone: Name,
    key: TSigner,
}

impl Server {
    /// Reads the keys of Gardener's external-dns-management.
    pub(crate) fn of_secret(secret: &Secret, zone: Option<&str>, name: &str) -> Result<Self, ActuatorError> {
        let data = secret.data.clone().unwrap_or_default();
        let get = |key: &str| Some(String::from_utf8(data.get(key)?.0.clone()).ok()?.trim().to_owned());
        let need = |key: &str| get(key).ok_or_else(|| misconfigured(format!("the Secret has no text {key}")));
        let secret = need("TSIGSecret")?;
        let secret = BASE64_STANDARD.decode(secret).map_err(|_| misconfigured("TSIGSecret is not in base64"))?;
        let algorithm = get("TSIGSecretAlgorithm").unwrap_or_else(|| "hmac-sha256".to_owned());
        let algorithm = TsigAlgorithm::from_name(Name::from_ascii(algorithm.trim_end_matches('.'))?);
        let key = TSigner::new(secret, algorithm, fqdn(&need("TSIGKeyName")?)?, FUDGE);
        let zone = fqdn(&zone.map_or_else(|| need("Zone"), |zone| Ok(zone.to_owned()))?)?;
        if !zone.zone_of(&fqdn(name)?) {
            return Err(misconfigured(format!("{name} is not in the zone {zone}")));
        }
        let key = key.map_err(|problem| misconfigured(problem.to_string()))?;
        Ok(Self { address: need("Server")?, zone, key })
    }

    /// Returns the zone without the dot at its end.
    pub(crate) fn zone(&self) -> String {
        self.zone.to_ascii().trim_end_matches('.').to_owned()
    }

    /// Carries out changes of records, all or none, unless this process has been frozen and no longer leads.
    pub(crate) async fn update(&self, context: &Context, changes: Vec<Record>) -> Result<(), ActuatorError> {
        let mut message = Message::query();
        message.metadata.op_code = OpCode::Update;
        message.metadata.recursion_desired = false;
        message.add_query(Query::query(self.zone.clone(), RecordType::SOA));
        // The authority section of an update has the changes.
        message.add_authorities(changes);
        let verifier = message.finalize(&self.key, u64::try_from(jiff::Timestamp::now().as_second())?)?;
        context.ensure_leading()?;
        let answer = timeout(LIMIT, self.send(&message.to_vec()?)).await.map_err(std::io::Error::from).flatten();
        let answer = answer.map_err(|problem| ActuatorError::new(format!("{}: {problem}", self.address)))?;
        let response = Message::from_vec(&answer)?;
        let code = response.response_code;
        let error = ActuatorError::new(format!("{} answered {code:?} to an update of {}", self.address, self.zone));
        let is_rejected = response.signature.as_ref().is_some_and(|tsig| tsig.data.error.is_some());
        match code {
            ResponseCode::NoError => Ok(verifier.map(|mut verifier| verifier.verify(&answer)).transpose().map(drop)?),
            ResponseCode::NotAuth if is_rejected => Err(error.code(ErrorCode::InfraUnauthenticated)),
            ResponseCode::Refused => Err(error.code(ErrorCode::InfraUnauthorized)),
            ResponseCode::NotAuth | ResponseCode::NotZone => Err(error.code(ErrorCode::ConfigurationProblem)),
            ResponseCode::ServFail => Err(error.code(ErrorCode::RetryableInfraDependencies)),
            _ => Err(error),
        }
    }

    /// Sends one message over TCP, each with its length before it.
    async fn send(&self, request: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.write_u16(u16::try_from(request.len()).map_err(std::io::Error::other)?).await?;
        stream.write_all(request).await?;
        let mut answer = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    }
}

/// Parses a name, with or without a dot at its end.
fn fqdn(name: &str) -> Result<Name, ActuatorError> {
    let mut parsed = Name::from_utf8(name).map_err(|problem| misconfigured(format!("name {name:?}: {problem}")))?;
    parsed.set_fqdn(true);
    Ok(parsed)
}
