//! The columns of the tables that `kubectl get` prints.

use super::Kind;

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// The OpenAPI type of the cells.
    pub(crate) kind: String,
    pub(crate) priority: i64,
    pub(crate) source: CellSource,
}

impl Column {
    fn new(name: &str, source: CellSource) -> Self {
        let kind = match source {
            CellSource::Count(_) | CellSource::Number(_) => "integer",
            CellSource::Created => "date",
            _ => "string",
        };
        Self { name: name.to_owned(), kind: kind.to_owned(), priority: 0, source }
    }
}

/// Where the cells of a column come from.
#[derive(Clone, Debug)]
pub(crate) enum CellSource {
    Name,
    Age,
    Created,
    /// The first value that a JSONPath matches.
    Path(String),
    /// The number of entries in the maps at these paths.
    Count(&'static [&'static str]),
    /// Two numbers, like `1/2`.
    Ratio(&'static str, &'static str),
    /// A number; 0 if it is missing.
    Number(&'static str),
    ReadyContainers,
    Restarts,
    Ports,
}

impl Kind {
    /// Returns the columns of a version.
    pub(crate) fn columns(&self, version: usize) -> Vec<Column> {
        let name = Column::new("Name", CellSource::Name);
        let age = || vec![Column::new("Age", CellSource::Age)];
        let rest = if self.crd.is_some() {
            let own = &self.versions[version].columns;
            if own.is_empty() { age() } else { own.clone() }
        } else if matches!(&*self.id.plural, "customresourcedefinitions" | "roles" | "clusterroles") {
            vec![Column::new("Created At", CellSource::Created)]
        } else {
            [self.own_columns(), age()].concat()
        };
        std::iter::once(name).chain(rest).collect()
    }

    /// Returns the columns between name and age of a kind of Kubernetes. For some kinds the sandbox knows none.
    fn own_columns(&self) -> Vec<Column> {
        let path = |path: &str| CellSource::Path(path.to_owned());
        let (ready, replicas) = ("/status/readyReplicas", "/spec/replicas");
        let columns = match (self.group(), &*self.id.plural) {
            ("", "configmaps") => vec![("Data", CellSource::Count(&["/data", "/binaryData"]))],
            ("", "secrets") => vec![("Type", path(".type")), ("Data", CellSource::Count(&["/data"]))],
            ("", "namespaces" | "persistentvolumeclaims") => vec![("Status", path(".status.phase"))],
            ("", "pods") => vec![
                ("Ready", CellSource::ReadyContainers),
                ("Status", path(".status.phase")),
                ("Restarts", CellSource::Restarts),
            ],
            ("", "services") => vec![
                ("Type", path(".spec.type")),
                ("Cluster-IP", path(".spec.clusterIP")),
                ("Port(s)", CellSource::Ports),
            ],
            ("apps", "deployments") => vec![
                ("Ready", CellSource::Ratio(ready, replicas)),
                ("Up-to-date", CellSource::Number("/status/updatedReplicas")),
                ("Available", CellSource::Number("/status/availableReplicas")),
            ],
            ("apps", "replicasets") => vec![
                ("Desired", CellSource::Number(replicas)),
                ("Current", CellSource::Number("/status/replicas")),
                ("Ready", CellSource::Number(ready)),
            ],
            ("apps", "statefulsets") => vec![("Ready", CellSource::Ratio(ready, replicas))],
            _ => Vec::new(),
        };
        columns.into_iter().map(|(name, source)| Column::new(name, source)).collect()
    }
}
