//! Whether a Service that the API server calls can answer: that of a webhook, a conversion or an aggregated API.

use serde_json::Value;

use crate::{
    Backend, Fact, ObjectRef, Responsible, ResponsibleState,
    case::{Case, Found, Priority, Seen},
    kinds, object,
};

/// The Service that a `clientConfig` or an APIService names.
pub(crate) struct Service<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// What is known of a Service.
pub(crate) enum Reach {
    /// Nothing.
    Unknown,
    /// It has ready endpoints.
    Ready(Responsible),
    /// It cannot answer.
    Broken(Backend, Responsible, Vec<Fact>),
}

impl<'a> Service<'a> {
    /// Reads a reference with `namespace` and `name`.
    pub(crate) fn of(reference: Option<&'a Value>) -> Option<Self> {
        let reference = reference?;
        Some(Self { namespace: object::text(reference, "/namespace")?, name: object::text(reference, "/name")? })
    }

    fn shown(&self) -> String {
        format!("Service {}/{}", self.namespace, self.name)
    }

    fn reference(&self) -> ObjectRef {
        kinds::SERVICE.named(Some(self.namespace), self.name)
    }

    /// Looks at the Service and its endpoints.
    pub(crate) fn reach(&self, case: &Case<'_>) -> Reach {
        let party = |state| Responsible::new(self.shown(), state);
        match case.builtin(&kinds::SERVICE, Some(self.namespace), self.name, Priority::Controller) {
            Seen::Missing => {
                let backend = Backend::ServiceMissing(format!("{}/{}", self.namespace, self.name));
                Reach::Broken(backend, party(ResponsibleState::Absent), vec![Fact::missing(&self.reference())])
            }
            // Another name is resolved elsewhere.
            Seen::There(service) if object::text(service, "/spec/type") == Some("ExternalName") => Reach::Unknown,
            Seen::There(_) => self.endpoints(case),
            _ => Reach::Unknown,
        }
    }

    fn endpoints(&self, case: &Case<'_>) -> Reach {
        let found = case.list(&kinds::ENDPOINT_SLICE, Some(self.namespace), Priority::Controller);
        let Found::Items(slices, complete) = found else { return Reach::Unknown };
        let own = slices.iter().filter(|slice| object::label(slice, "kubernetes.io/service-name") == Some(self.name));
        let mut endpoints = own.flat_map(|slice| object::list(slice, "/endpoints"));
        // An unset condition counts as ready.
        if endpoints.any(|endpoint| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false))) {
            return Reach::Ready(Responsible::new(self.shown(), ResponsibleState::Working));
        }
        if !complete {
            return Reach::Unknown;
        }
        let backend = Backend::NoEndpoints(format!("{}/{}", self.namespace, self.name));
        let fact = Fact::new(&self.reference(), "EndpointSlices", "no ready endpoint");
        Reach::Broken(backend, Responsible::new(self.shown(), ResponsibleState::Failing), vec![fact])
    }
}
