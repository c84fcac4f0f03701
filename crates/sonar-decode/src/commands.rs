//! Where does each command say which collection it works on, and what distinguishes two of its calls? One table for
//! the wire, profiles and logs.
//!
//! The names are those that servers 2.4 to 9.0 register, with the older spellings that they still accept. Where the
//! namespace stands is what the server's own parsing does. In <https://github.com/mongodb/mongo>,
//! `jstests/core/commands_namespace_parsing.js` and `jstests/core/views/views_all_commands.js` try it with each command,
//! and the `namespace` of a command in its `.idl` file says it: `concatenate_with_db` is [`NamespacePlace::Value`],
//! `ignored` is [`NamespacePlace::Database`], and `type: namespacestring` is [`NamespacePlace::Whole`]. A command that is
//! not in the table is unknown: neither its namespace nor its shape is.

/// The commands whose bodies have a shape of their own. The shape of every other command is its name and namespace.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum CommandKind {
    #[default]
    Other,
    Find,
    Aggregate,
    Count,
    Distinct,
    Insert,
    Update,
    Delete,
    FindAndModify,
    BulkWrite,
    GetMore,
    KillCursors,
    Explain,
    MapReduce,
    CreateIndexes,
    Hello,
    Group,
    /// `geoNear`, `geoSearch`, and `text` of 2.4.
    GeoNear,
    /// `listCollections` and `listDatabases`.
    Listing,
    /// Commands on the cached plans of a query.
    PlanCache,
    /// Locks writes with `lock: true`.
    Fsync,
    /// Only asks with a negative level and nothing else; level 0 is off.
    Profile,
}

impl CommandKind {
    /// From the name of the command, by the table of this module.
    pub fn of(name: &[u8]) -> Self {
        rule(name).unwrap_or_default().kind
    }

    /// Whether its shape is made of statements.
    pub const fn has_statements(self) -> bool {
        matches!(self, Self::Update | Self::Delete | Self::BulkWrite)
    }
}

/// Where a command names its namespace.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum NamespacePlace {
    /// It works on a database or on the server; `$db` is its namespace.
    #[default]
    Database,
    /// The value of its first key is a collection of its database; any other value (`aggregate: 1`) stands for the
    /// database.
    Value,
    /// The value of its first key is a database and a collection.
    Whole,
    /// The value of its first key is a database.
    DatabaseValue,
    /// `ns` in the document that is the value of its first key is a collection of its database.
    Inside,
    /// `collection` is a collection of its database.
    Collection,
    /// `root` is the prefix of two collections of GridFS; the server reads `chunks`.
    Root,
    /// Its statements refer to the list `nsInfo`.
    Statements,
    /// It has that of the command inside it.
    Inner,
}

/// What is known of a command by its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandRule {
    /// Where its namespace stands.
    pub namespace: NamespacePlace,
    /// What its shape is made of; of [`CommandKind::Other`] it is the name and the namespace.
    pub kind: CommandKind,
}

impl CommandRule {
    /// Whether the first value of the command, if it is a string, is a collection of its database.
    pub fn names_a_collection(self) -> bool {
        self.namespace == NamespacePlace::Value
    }

    /// Whether the namespace, if it is not that of the command's `$db`, is in its first value.
    pub fn names_a_database(self) -> bool {
        matches!(self.namespace, NamespacePlace::Whole | NamespacePlace::DatabaseValue)
    }
}

macro_rules! commands {
    ($($place:ident $kind:ident $($name:literal)+;)+) => {
        /// What is known of the command `name`; `None` if no server is known to have it.
        pub fn rule(name: &[u8]) -> Option<CommandRule> {
            Some(match name {
                $($($name)|+ => CommandRule {
                    namespace: NamespacePlace::$place,
                    kind: CommandKind::$kind,
                },)+
                _ => return None,
            })
        }

        /// All names.
        #[cfg(test)]
        pub const NAMES: &[&[u8]] = &[$($($name),+),+];
    };
}

commands! {
    // Queries and writes: the shape is made of the fields that `shape::rules` lists.
    Value Find b"find" b"clusterFind";
    Value Aggregate b"aggregate" b"clusterAggregate";
    Value Count b"count" b"clusterCount";
    Value Distinct b"distinct";
    Value Insert b"insert" b"clusterInsert";
    Value Update b"update" b"clusterUpdate";
    Value Delete b"delete" b"clusterDelete";
    Value FindAndModify b"findAndModify" b"findandmodify";
    Value MapReduce b"mapReduce" b"mapreduce";
    Value CreateIndexes b"createIndexes";
    Value GeoNear b"geoNear" b"geoSearch" b"text";
    Value PlanCache b"planCacheClear" b"planCacheClearFilters" b"planCacheListFilters" b"planCacheListPlans"
        b"planCacheListQueryShapes" b"planCacheSetFilter";
    Inside Group b"group";
    Statements BulkWrite b"bulkWrite" b"clusterBulkWrite";
    Inner Explain b"explain";
    Database Listing b"listCollections" b"listDatabases";
    Database Fsync b"fsync";
    Database Profile b"profile";
    Database Hello b"hello" b"isMaster" b"ismaster";

    // Cursors: the shape is that of the command that opened it.
    Collection GetMore b"getMore" b"clusterGetMore";
    Value KillCursors b"killCursors";

    // All others: the shape is the name and the namespace. On a collection of the command's database:
    Value Other b"analyze" b"autoSplitVector" b"captrunc" b"checkMetadataConsistency"
        b"cleanupStructuredEncryptionData" b"cloneCollectionAsCapped" b"collMod" b"collStats" b"collstats" b"compact"
        b"compactStructuredEncryptionData" b"convertToCapped" b"create" b"createSearchIndexes" b"dbCheck"
        b"deleteIndexes" b"drop" b"dropIndexes" b"dropSearchIndex" b"emptycapped" b"getQueryableEncryptionCountInfo"
        b"_shardsvrCollMod" b"_shardsvrCollModParticipant" b"_shardsvrCompactStructuredEncryptionData"
        b"_shardsvrCleanupStructuredEncryptionData" b"_shardsvrConvertToCapped" b"_shardsvrCreateCollection"
        b"_shardsvrCreateCollectionParticipant" b"_shardsvrDropCollection" b"_shardsvrDropCollectionParticipant"
        b"_shardsvrDropCollectionIfUUIDNotMatching" b"_shardsvrDropIndexes" b"_shardsvrRefineCollectionShardKey"
        b"_shardsvrRenameCollection" b"_shardsvrRenameCollectionParticipant" b"_shardsvrSetAllowMigrations"
        b"godinsert" b"listIndexes" b"listSearchIndexes" b"parallelCollectionScan" b"reIndex"
        b"releaseMemory" b"repairCursor" b"setIndexCommitQuorum" b"touch" b"updateSearchIndex" b"validate"
        b"validateDBMetadata" b"voteAbortIndexBuild" b"voteCommitIndexBuild"
        b"_configsvrCheckMetadataConsistency" b"_configsvrCollMod" b"_shardsvrCheckMetadataConsistency"
        b"_shardsvrCheckMetadataConsistencyParticipant" b"_shardsvrConvertToCappedParticipant"
        b"_shardsvrDropCollectionIfUUIDNotMatchingWithWriteConcern" b"_shardsvrDropIndexesParticipant"
        b"_shardsvrParticipantBlock" b"_shardsvrRecreateRangeDeletionTasks"
        b"_shardsvrRecreateRangeDeletionTasksParticipant" b"_shardsvrRenameCollectionParticipantUnblock"
        b"createUnsplittableCollection" b"exportCollection" b"importCollection" b"indexStats"
        b"recreateRangeDeletionTasks" b"storageDetails" b"timeseriesCatalogBucketParamsChanged"
        b"upgradeDowngradeViewlessTimeseries";

    // On a namespace, mostly of another database than the command's, which is `admin`:
    Whole Other b"_cloneCollectionOptionsFromPrimaryShard" b"_configsvrBalancerCollectionStatus"
        b"_configsvrClearJumboFlag" b"_configsvrCommitChunkMerge" b"_configsvrCommitChunkMigration"
        b"_configsvrCommitChunkSplit" b"_configsvrCommitChunksMerge" b"_configsvrCommitMergeAllChunksOnShard"
        b"_configsvrCommitReshardCollection" b"_configsvrConfigureCollectionBalancing" b"_configsvrCreateCollection"
        b"_configsvrDropCollection" b"_configsvrMoveChunk" b"_configsvrMoveRange"
        b"_configsvrRefineCollectionShardKey" b"_configsvrRemoveTags" b"_configsvrRenameCollection"
        b"_configsvrReshardCollection" b"_configsvrAbortReshardCollection" b"_configsvrCleanupReshardCollection"
        b"_configsvrShardCollection" b"_configsvrSplitChunk" b"_configsvrUpdateZoneKeyRange"
        b"_flushRoutingTableCacheUpdates"
        b"_flushRoutingTableCacheUpdatesWithWriteConcern" b"_flushReshardingStateChange" b"_recvChunkStart"
        b"_shardsvrAbortReshardCollection" b"_shardsvrCleanupReshardCollection" b"_shardsvrCommitReshardCollection"
        b"_shardsvrMergeAllChunksOnShard" b"_shardsvrMergeChunks" b"_shardsvrMoveRange"
        b"_shardsvrReshardCollection" b"_shardsvrShardCollection"
        b"abortMoveCollection" b"abortReshardCollection" b"abortUnshardCollection" b"analyzeShardKey"
        b"balancerCollectionStatus" b"checkShardingIndex" b"cleanupOrphaned" b"cleanupReshardCollection"
        b"clearJumboFlag" b"cloneCollection" b"commitReshardCollection" b"configureCollectionBalancing"
        b"configureQueryAnalyzer" b"dataSize" b"datasize" b"getShardVersion" b"medianKey" b"mergeAllChunksOnShard"
        b"mergeChunks" b"moveChunk" b"movechunk" b"moveCollection" b"moveRange" b"refineCollectionShardKey"
        b"renameCollection" b"reshardCollection" b"setShardVersion" b"shardCollection" b"shardcollection" b"split"
        b"splitChunk" b"splitVector" b"unshardCollection" b"untrackUnshardedCollection" b"updateZoneKeyRange"
        b"_configsvrCommitIndex" b"_configsvrCommitRefineCollectionShardKey" b"_configsvrConfigureAutoSplit"
        b"_configsvrDropIndexCatalogEntry" b"_configsvrGetHistoricalPlacement"
        b"_configsvrRenameCollectionMetadata" b"_configsvrSetAllowMigrations"
        b"_shardsvrBeginMigrationBlockingOperation" b"_shardsvrCommitIndexParticipant"
        b"_shardsvrCoordinateMultiUpdate" b"_shardsvrDropIndexCatalogEntryParticipant"
        b"_shardsvrEndMigrationBlockingOperation" b"_shardsvrFetchCollMetadata" b"_shardsvrRegisterIndex"
        b"_shardsvrRenameIndexMetadata" b"_shardsvrReshardRecipientClone"
        b"_shardsvrReshardingDonorFetchFinalCollectionStats"
        b"_shardsvrReshardingDonorStartChangeStreamsMonitor" b"_shardsvrReshardingOperationTime"
        b"_shardsvrUnregisterIndex" b"_shardsvrUntrackUnsplittableCollection"
        b"_shardsvrValidateShardKeyCandidate" b"configureCollectionAutoSplitter" b"setAllowMigrations"
        b"testReshardCloneCollection" b"abortRewriteCollection" b"rewriteCollection";

    // On another database, or on a collection of one:
    DatabaseValue Other b"_configsvrCommitMovePrimary" b"_configsvrCreateDatabase" b"_configsvrDropDatabase"
        b"_configsvrEnableSharding" b"_configsvrMovePrimary" b"_flushDatabaseCacheUpdates"
        b"_flushDatabaseCacheUpdatesWithWriteConcern" b"_movePrimary" b"_shardsvrMovePrimary"
        b"changePrimary" b"enableSharding" b"enablesharding" b"flushRouterConfig" b"getDatabaseVersion" b"movePrimary" b"moveprimary"
        b"_cloneCatalogData" b"_shardsvrCloneCatalogData"
        b"_shardsvrChangePrimary" b"_shardsvrMovePrimaryEnterCriticalSection"
        b"_shardsvrMovePrimaryExitCriticalSection";

    Root Other b"filemd5";

    // On the command's database or on the server:
    Database Other b"_shardsvrDropDatabase" b"_shardsvrDropDatabaseParticipant"

        b"_shardsvrJoinDDLCoordinators" b"_shardsvrJoinMigrations" b"$eval" b"_addShard" b"_configsvrAddShard" b"_configsvrAddShardToZone"
        b"_configsvrBalancerStart" b"_configsvrBalancerStatus" b"_configsvrBalancerStop"
        b"_configsvrCheckClusterMetadataConsistency"
        b"_configsvrRemoveChunks" b"_configsvrRemoveShard"
        b"_configsvrRemoveShardFromZone" b"_configsvrRepairShardedCollectionChunksHistory"
        b"_configsvrResetPlacementHistory" b"_configsvrRunRestore"
        b"_configsvrSetClusterParameter" b"_configsvrSetUserWriteBlockMode" b"_configsvrTransitionFromDedicatedConfigServer"
        b"_configsvrTransitionToDedicatedConfigServer" b"_dropConnectionsToMongot"
        b"_getAuditConfigGeneration" b"_getNextSessionMods" b"_getUserCacheGeneration" b"_hashBSONElement" b"_isSelf"
        b"_killOperations" b"_mergeAuthzCollections" b"_migrateClone" b"_mongotConnPoolStats" b"_recvChunkAbort"
        b"_recvChunkCommit" b"_recvChunkReleaseCritSec" b"_recvChunkStatus" b"_refreshQueryAnalyzerConfiguration"
        b"_replSetDiagnose" b"_testDistLockWithSkew" b"_testDistLockWithSyncCluster" b"_transferMods"
        b"abortTransaction" b"addShard" b"addShardToZone" b"addShardTag" b"addshard" b"appendOplogNote"
        b"applyOps" b"authSchemaUpgrade" b"authenticate" b"autoCompact" b"availableQueryOptions" b"availablequeryoptions"
        b"balancerStart" b"balancerStatus" b"balancerStop" b"buildInfo" b"buildinfo" b"clearLog" b"clone"
        b"clusterAbortTransaction" b"clusterCommitTransaction" b"commitTransaction"
        b"configureFailPoint" b"connPoolStats" b"connPoolSync"
        b"connectionStatus" b"coordinateCommitTransaction" b"copydb" b"copydbgetnonce"
        b"copydbsaslstart" b"cpuload" b"createRole" b"createUser" b"currentOp" b"cursorInfo" b"dbHash" b"dbhash"
        b"dbStats" b"dbstats" b"diagLogging" b"driverOIDTest" b"dropAllRolesFromDatabase" b"dropAllUsersFromDatabase"
        b"dropConnections" b"dropDatabase" b"dropRole" b"dropUser" b"echo" b"endSessions" b"eval" b"features"
        b"forceerror" b"fsyncUnlock" b"getAuditConfig" b"getChangeStreamState"
        b"getClusterParameter" b"getCmdLineOpts" b"getDefaultRWConcern" b"getDiagnosticData"
        b"getFreeMonitoringStatus" b"getLastError" b"getlasterror" b"getLog" b"getParameter" b"getPrevError"
        b"getpreverror" b"getShardMap" b"getShardingReady" b"getoptime" b"getnonce" b"grantPrivilegesToRole"
        b"grantRolesToRole" b"grantRolesToUser" b"handshake" b"hostInfo" b"httpClientRequest"
        b"internalRenameIfOptionsAndIndexesMatch" b"invalidateUserCache" b"isdbgrid" b"journalLatencyTest"
        b"killAllSessions" b"killAllSessionsByPattern" b"killOp" b"killSessions" b"listCommands"
        b"listDatabasesForAllTenants" b"listShards" b"listshards" b"lockInfo" b"logApplicationMessage" b"logMessage"
        b"logRotate" b"logout" b"makeSnapshot" b"mapreduce.shardedfinish" b"multicast" b"netstat" b"oidReset"
        b"pinHistoryReplicated" b"ping" b"prepareTransaction" b"reapLogicalSessionCacheNow"
        b"refreshLogicalSessionCacheNow" b"refreshSessions" b"refreshSessionsInternal"
        b"removeShard" b"removeShardFromZone" b"removeshard" b"repairDatabase"
        b"repairShardedCollectionChunksHistory" b"replSetAbortPrimaryCatchUp" b"replSetDeclareElectionWinner" b"replSetElect" b"replSetFreeze"
        b"replSetFresh" b"replSetGetConfig" b"replSetGetRBID" b"replSetGetStatus" b"replSetHeartbeat"
        b"replSetInitiate" b"replSetMaintenance" b"replSetReconfig" b"replSetRequestVotes" b"replSetResizeOplog"
        b"replSetStepDown" b"replSetStepUp" b"replSetSyncFrom" b"replSetTest" b"replSetTestEgress"
        b"replSetUpdatePosition" b"resetError" b"reseterror" b"resetPlacementHistory" b"resync"
        b"revokePrivilegesFromRole" b"revokeRolesFromRole" b"revokeRolesFromUser" b"rolesInfo" b"rotateCertificates"
        b"saslContinue" b"saslStart" b"serverStatus" b"setAuditConfig" b"setChangeStreamState"
        b"setClusterParameter" b"setCommittedSnapshot" b"setDefaultRWConcern" b"setFeatureCompatibilityVersion"
        b"setFreeMonitoring" b"setParameter" b"setProfilingFilterGlobally" b"setQuerySettings"
        b"removeQuerySettings" b"setUserWriteBlockMode" b"shardConnPoolStats" b"shardingState" b"shutdown" b"sleep"
        b"stageDebug" b"startRecordingTraffic" b"startSession" b"startShardDraining" b"stopShardDraining"
        b"shardDrainingStatus" b"commitShardRemoval" b"stopRecordingTraffic" b"streams_startStreamProcessor"
        b"sysprofile" b"top" b"transitionFromDedicatedConfigServer" b"transitionToDedicatedConfigServer"
        b"unsetSharding" b"updateRole" b"updateUser" b"usersInfo" b"voteCommitImportCollection" b"voteCommitTransaction"
        b"voteAbortImportCollection" b"waitForFailPoint" b"waitForOngoingChunkSplits" b"whatsmysni" b"whatsmyuri"
        b"writeBacksQueued" b"writebacklisten"
        b"_clusterQueryWithoutShardKey" b"_clusterWriteWithoutShardKey" b"_configsvrAddShardCoordinator"
        b"_configsvrCommitShardRemoval" b"_configsvrEnsureChunkVersionIsGreaterThan"
        b"_configsvrRemoveShardCommit" b"_configsvrShardDrainingStatus" b"_configsvrStartShardDraining"
        b"_configsvrStopShardDraining" b"_dropMirrorMaestroConnections" b"_flushShardRegistry"
        b"_mirrorMaestroConnPoolStats" b"_shardsvrCheckCanConnectToConfigServer"
        b"_shardsvrCloneAuthoritativeMetadata" b"_shardsvrCommitCreateDatabaseMetadata"
        b"_shardsvrCommitDropDatabaseMetadata" b"_shardsvrCreateGlobalIndex"
        b"_shardsvrDeleteGlobalIndexKey" b"_shardsvrDrainOngoingDDLOperations" b"_shardsvrDropGlobalIndex"
        b"_shardsvrGetStatsForBalancing" b"_shardsvrInsertGlobalIndexKey" b"_shardsvrNotifyShardingEvent"
        b"_shardsvrRunSearchIndexCommand" b"_shardsvrSetClusterParameter" b"_shardsvrSetUserWriteBlockMode"
        b"_shardsvrWriteGlobalIndexKeys" b"_skewClockCommand" b"_vectorClockPersist" b"abortShardSplit"
        b"closeAllDatabases" b"commitShardSplit" b"configureBackgroundTask" b"createBackup" b"cst"
        b"donorAbortMigration" b"donorAbortSplit" b"donorForgetMigration" b"donorForgetSplit"
        b"donorStartMigration" b"donorStartSplit" b"donorWaitForMigrationToCommit" b"forgetShardSplit"
        b"getTrafficRecordingStatus" b"oidcListKeys" b"oidcRefreshKeys" b"recipientForgetMigration"
        b"recipientSyncData" b"recipientVoteImportedFiles" b"rotateFTDC" b"sbe" b"startTrafficRecording"
        b"startXRayLogging" b"stopTrafficRecording" b"stopXRayLogging" b"streams_getMetrics"
        b"streams_getMoreStreamSample" b"streams_getStats" b"streams_listStreamProcessors"
        b"streams_sendEvent" b"streams_startStreamSample" b"streams_stopStreamProcessor"
        b"streams_testOnlyGetFeatureFlags" b"streams_testOnlyInsert" b"streams_updateConnection"
        b"streams_updateFeatureFlags" b"streams_writeCheckpoint" b"testDeprecation"
        b"testDeprecationInVersion2" b"testInternalTransactions" b"testRemoval" b"testVersion2"
        b"testVersions1And2" b"transitionToShardedCluster" b"auditGetOptions" b"voteAbortTransaction"
        b"commitTransitionToDedicatedConfigServer" b"getTransitionToDedicatedConfigServerStatus"
        b"startTransitionToDedicatedConfigServer" b"stopTransitionToDedicatedConfigServer";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_is_in_the_table_twice() {
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(rule(b"fooBar"), None);
    }

    /// Some of those that the server's tests of its namespaces try.
    #[test]
    fn each_command_names_its_namespace_where_the_server_looks_for_it() {
        use NamespacePlace::{Collection, Database, DatabaseValue, Inside, Root, Value, Whole};
        for (name, place) in [
            ("aggregate", Value),
            ("count", Value),
            ("mapreduce", Value),
            ("getMore", Collection),
            ("godinsert", Value),
            ("planCacheSetFilter", Value),
            ("cleanupOrphaned", Whole),
            ("enableSharding", DatabaseValue),
            ("mergeChunks", Whole),
            ("shardCollection", Whole),
            ("split", Whole),
            ("moveChunk", Whole),
            ("movePrimary", DatabaseValue),
            ("flushRouterConfig", DatabaseValue),
            ("updateZoneKeyRange", Whole),
            ("renameCollection", Whole),
            ("create", Value),
            ("filemd5", Root),
            ("dataSize", Whole),
            ("dbCheck", Value),
            ("group", Inside),
            ("createUser", Database),
            ("getLog", Database),
            ("$eval", Database),
            ("setAllowMigrations", Whole),
            ("_shardsvrBeginMigrationBlockingOperation", Whole),
            ("_shardsvrReshardingOperationTime", Whole),
            ("_shardsvrParticipantBlock", Value),
            ("_shardsvrMovePrimaryEnterCriticalSection", DatabaseValue),
            ("_clusterQueryWithoutShardKey", Database),
            ("clusterBulkWrite", NamespacePlace::Statements),
        ] {
            assert_eq!(rule(name.as_bytes()).map(|rule| rule.namespace), Some(place), "{name}");
        }
    }

    /// What each version registers, by its own lists: see the head of the file.
    #[test]
    fn the_table_has_every_command_of_every_version() {
        let lists = include_str!("../tests/it/golden/commands.txt");
        let (mut versions, mut unknown) = (Vec::new(), Vec::new());
        for line in lists.lines().filter(|line| !line.starts_with('#')) {
            let (version, names) = line.split_once(':').expect("a version and its commands");
            versions.push(version);
            let missing = names.split_whitespace().filter(|name| rule(name.as_bytes()).is_none());
            unknown.extend(missing.map(|name| format!("{version} {name}")));
        }
        assert_eq!(unknown, Vec::<String>::new());
        let all = "2.4 2.6 3.0 3.2 3.4 3.6 4.0 4.2 4.4 5.0 6.0 7.0 8.0 8.2 9.0";
        assert_eq!(versions.join(" "), all);
    }

    /// Listed by the server's sources of 8.1 and later, which do not say where its namespace stands: nothing is guessed.
    #[test]
    fn a_command_whose_namespace_is_not_known_is_not_in_the_table() {
        for name in ["_shardsvrCommitToShardLocalCatalog", "_shardsvrResolveView", "wiredTigerRepair"] {
            assert_eq!(rule(name.as_bytes()), None, "{name}");
            assert_eq!(CommandKind::of(name.as_bytes()), CommandKind::Other);
        }
    }
}
