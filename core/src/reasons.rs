//! Every condition type, condition reason and event reason that we write, once.
//!
//! Users' dashboards and scripts depend on those of the reference systems; ours stand beside them.

/// Types of conditions in a check's status.
pub const DISABLED: &str = "Disabled";
/// Ours: may the check start remediations now, and if not, why not?
pub const REMEDIATION_ALLOWED: &str = "RemediationAllowed";

/// Ours, only while it is True: the roles that providers label lack a verb.
pub const LIMITED_RIGHTS: &str = "LimitedRights";
pub const NOT_GRANTED: &str = "NotGranted";

/// Ours, only while it is True: a threshold above 100%, which only a definition of others lets pass.
pub const THRESHOLD_CLAMPED: &str = "ThresholdClamped";
pub const ABOVE_ALL: &str = "AboveAllNodes";

/// Ours, only while it is True, and the reason of its event: a Lease is named like that of another controller's leader.
pub const LEASE_IGNORED: &str = "ForeignLeaseIgnored";
pub const ELSEWHERE: &str = "OtherNamespace";

/// Types, while the check has a stormCooldownDuration.
pub const STORM_ACTIVE: &str = "StormActive";
pub const STORM_COOLDOWN_ACTIVE: &str = "StormCooldownActive";

/// Reason of both.
pub const THRESHOLD_CHANGE: &str = "HealthyNodeThresholdChange";
/// Ours: is the cluster being upgraded? Remembers over restarts when versions changed last.
pub const UPGRADING: &str = "Upgrading";

/// Ours, only while it is True, and the reason of its event: somebody should look whether it goes on at all.
pub const UPGRADE_TAKES_LONG: &str = "UpgradeTakesLong";
pub const MORE_THAN_TWO_HOURS: &str = "MoreThanTwoHours";

/// Reasons of `Disabled`.
pub const ENABLED_REASON: &str = "NodeHealthCheckEnabled";
pub const TEMPLATE_NOT_FOUND: &str = "RemediationTemplateNotFound";
pub const TEMPLATE_INVALID: &str = "RemediationTemplateInvalid";
pub const SPEC_INVALID: &str = "NodeHealthCheckInvalid";
/// Somebody else's controller is alive, and the check does not say that we take over.
pub const FOREIGN_CONTROLLER: &str = "ForeignController";

/// Reasons of `RemediationAllowed`.
pub const GATE_OPEN: &str = "RemediationAllowed";
pub const PAUSED: &str = "Paused";
pub const TOO_MANY_UNHEALTHY: &str = "TooManyUnhealthy";
pub const STORM: &str = "StormCooldown";
pub const DISABLED_REASON: &str = "Disabled";
/// Something that decisions rest on is not known, or no longer certain.
pub const STALE: &str = "Stale";

/// Our clock and that of the API server differ.
pub const CLOCK_DIFFERS: &str = "ClockDiffers";

/// Whether everything is paused cannot be known.
pub const PAUSE_UNKNOWN: &str = "PauseUnknown";

/// The cluster is being upgraded, or a detector that worked does not any more.
pub const UPGRADE: &str = "Upgrading";
pub const UPGRADE_UNKNOWN: &str = "UpgradeUnknown";

/// Reasons of `Upgrading`: which detector says so.
pub const UPGRADING_CLUSTER_VERSION: &str = "ClusterVersion";
pub const UPGRADING_MACHINE_CONFIG: &str = "MachineConfig";
pub const UPGRADING_KUBELETS: &str = "KubeletVersions";
pub const UPGRADING_SERVER: &str = "ServerVersion";
pub const UPGRADING_KURED: &str = "KuredLock";
pub const UPGRADING_PLANS: &str = "SystemUpgradePlan";
pub const UPGRADING_MAINTENANCE: &str = "Maintenance";
pub const NOT_UPGRADING: &str = "NoUpgradeSeen";
pub const UPGRADING_OFF: &str = "DetectorsOff";

/// Phases.
pub const PHASE_DISABLED: &str = "Disabled";
pub const PHASE_PAUSED: &str = "Paused";
pub const PHASE_REMEDIATING: &str = "Remediating";
pub const PHASE_ENABLED: &str = "Enabled";

/// Reasons of events.
pub const EVENT_PAUSED: &str = "Paused";
pub const EVENT_RESUMED: &str = "Resumed";
pub const EVENT_ENABLED: &str = "Enabled";
pub const EVENT_DISABLED: &str = "Disabled";
pub const EVENT_DETECTED_UNHEALTHY: &str = "DetectedUnhealthy";
pub const EVENT_REMEDIATION_CREATED: &str = "RemediationCreated";
pub const EVENT_REMEDIATION_REMOVED: &str = "RemediationRemoved";
pub const EVENT_REMEDIATION_SKIPPED: &str = "RemediationSkipped";
/// Ours: the Machine that a node names as its own names another node.
pub const EVENT_MACHINE_MISMATCH: &str = "MachineMismatch";
pub const EVENT_NO_TEMPLATE_LEFT: &str = "NoTemplateLeft";
pub const EVENT_INVALID_NODE_LABEL: &str = "InvalidNodeLabel";
pub const EVENT_THRESHOLD_CLAMPED: &str = "ThresholdClamped";
pub const EVENT_STORM_STARTED: &str = "StormRecoveryStarted";
pub const EVENT_STORM_COOLDOWN_STARTED: &str = "StormRecoveryCooldownStarted";
pub const EVENT_STORM_ENDED: &str = "StormRecoveryEnded";

/// Of MachineHealthChecks. Reasons of HealthCheckSucceeded on a Machine.
pub const HEALTH_CHECK_SUCCEEDED: &str = "HealthCheckSucceeded";
pub const UNHEALTHY_NODE: &str = "UnhealthyNode";
pub const UNHEALTHY_MACHINE: &str = "UnhealthyMachine";
pub const NODE_STARTUP_TIMEOUT: &str = "NodeStartupTimeout";
pub const NODE_DELETED: &str = "NodeDeleted";
pub const NODE_NOT_FOUND: &str = "NodeNotFound";
pub const HAS_REMEDIATE_ANNOTATION: &str = "HasRemediateAnnotation";
pub const HAS_REMEDIATE_ANNOTATION_LEGACY: &str = "HasRemediateMachineAnnotation";
pub const MACHINE_FAILED: &str = "MachineFailed";
/// Of OwnerRemediated and ExternallyRemediated.
pub const WAITING_FOR_REMEDIATION: &str = "WaitingForRemediation";

/// Types and reasons of conditions in a MachineHealthCheck's status, beside RemediationAllowed and Paused.
pub const NOT_PAUSED: &str = "NotPaused";
pub const EXTERNAL_TEMPLATE_AVAILABLE: &str = "ExternalRemediationTemplateAvailable";
pub const EXTERNAL_TEMPLATE_NOT_FOUND: &str = "ExternalRemediationTemplateNotFound";
pub const EXTERNAL_REQUEST_AVAILABLE: &str = "ExternalRemediationRequestAvailable";
pub const EXTERNAL_REQUEST_FAILED: &str = "ExternalRemediationRequestCreationFailed";
/// Ours, only while they are True; the first on NodeHealthChecks, too.
pub const OVERLAPPING: &str = "Overlapping";
pub const REMEDIATION_HELD: &str = "RemediationHeld";
pub const MACHINES_HELD: &str = "MachinesHeld";
pub const DEPRECATED_STRATEGY: &str = "DeprecatedStrategy";
pub const STRATEGY_ANNOTATION: &str = "StrategyAnnotation";
/// Ours, of RemediationAllowed.
pub const MACHINE_CHECK_INVALID: &str = "MachineHealthCheckInvalid";
pub const CLUSTER_MISSING: &str = "ClusterMissing";
pub const CLUSTER_UNREACHABLE: &str = "ClusterUnreachable";
pub const ANOTHER_CLUSTER: &str = "AnotherCluster";
pub const NO_NODE_KNOWN: &str = "NoNodeKnown";
pub const TEMPLATE_UNAVAILABLE: &str = "RemediationTemplateUnavailable";

/// Reasons of events on MachineHealthChecks and Machines.
pub const EVENT_REMEDIATION_RESTRICTED: &str = "RemediationRestricted";
pub const EVENT_MARKED_UNHEALTHY: &str = "MachineMarkedUnhealthy";
pub const EVENT_TEMPLATE_UNAVAILABLE: &str = "RemediationTemplateUnavailable";
pub const EVENT_REQUEST_FAILED: &str = "RemediationRequestFailed";
pub const EVENT_NO_CONTROLLER: &str = "SkippedNoController";
pub const EVENT_MACHINE_DELETED: &str = "MachineDeleted";
pub const EVENT_MACHINE_DELETION_FAILED: &str = "MachineDeletionFailed";
pub const EVENT_ANNOTATION_ADDED: &str = "ExternalAnnotationAdded";
pub const EVENT_ANNOTATION_FAILED: &str = "ExternalAnnotationFailed";
pub const EVENT_ANNOTATION_REMOVED: &str = "ExternalAnnotationRemoved";
