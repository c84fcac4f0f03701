use proptest::prelude::*;

use super::*;

/// The class of a thread that sleeps in a call, with functions from the caller to the callee.
fn class_of(call: &str, functions: &str) -> WaitClass {
    let mut functions: Vec<&str> = functions.split(' ').collect();
    functions.reverse();
    let view = StackView { state: ThreadState::Sleeping, call: Some(call), functions: &functions };
    WaitClasses::default().classify(&view)
}

/// Stacks as the sources of several versions give them, and their class.
const STACKS: &[(&str, &str, &str)] = &[
    // A published case of 3.2.4, with the profiler at level 2.
    (
        "profiler write",
        "futex",
        "clone start_thread mongo::assembleResponse mongo::profile mongo::Collection::insertDocument \
         mongo::Collection::_insertDocuments mongo::Lock::ResourceLock::lock mongo::LockerImpl::lockComplete \
         mongo::CondVarLockGrantNotification::wait pthread_cond_timedwait",
    ),
    (
        "profiler write",
        "futex",
        "mongo::profile_collection::profile mongo::Lock::CollectionLock::CollectionLock mongo::Locker::_lockComplete",
    ),
    (
        "profiler write",
        "futex",
        "mongo::profile mongo::CollectionImpl::insertDocument __curfile_insert __wt_cond_wait_signal",
    ),
    (
        "execution ticket",
        "futex",
        "mongo::LockerImpl::_acquireTicket mongo::TicketHolder::waitForTicketUntil sem_timedwait",
    ),
    ("execution ticket", "futex", "mongo::SemaphoreTicketHolder::_waitForTicketUntilImpl sem_timedwait"),
    ("execution ticket", "futex", "mongo::PriorityTicketHolder::_waitForTicketUntilImpl"),
    ("execution ticket", "futex", "mongo::TicketHolder::_performWaitForTicketUntil"),
    ("execution ticket", "poll", "mongo::UnorderedTicketSemaphore::acquire"),
    ("execution ticket", "poll", "mongo::OrderedTicketSemaphore::acquire"),
    (
        "ingress queue",
        "futex",
        "mongo::IngressAdmissionController::admitOperation mongo::TicketHolder::waitForTicket",
    ),
    ("flow control", "poll", "mongo::FlowControlTicketholder::getTicket mongo::BatonASIO::run"),
    (
        "replication state transition lock",
        "poll",
        "mongo::Lock::GlobalLock::GlobalLock mongo::LockerImpl::lock mongo::LockerImpl::_lockComplete poll",
    ),
    (
        "global lock",
        "futex",
        "mongo::Lock::GlobalLock::GlobalLock mongo::LockerImpl::lockGlobal mongo::LockerImpl::lockComplete",
    ),
    ("global lock", "poll", "mongo::Locker::lockGlobal mongo::Locker::_lockComplete"),
    // Stacks of a 4.4.6: tail calls leave out functions, and operations run below the one that has read the request.
    (
        "global lock",
        "poll",
        "mongo::ServiceStateMachine::_runNextInGuard mongo::ServiceStateMachine::_sourceMessage \
         mongo::ServiceStateMachine::_sourceCallback mongo::ServiceStateMachine::_processMessage \
         mongo::ServiceEntryPointMongod::handleRequest mongo::AutoGetDb::AutoGetDb mongo::Lock::DBLock::DBLock \
         mongo::Lock::GlobalLock::GlobalLock mongo::LockerImpl::_lockComplete \
         mongo::CondVarLockGrantNotification::wait mongo::transport::TransportLayerASIO::BatonASIO::run poll",
    ),
    (
        "collection lock",
        "poll",
        "mongo::ServiceStateMachine::_sourceMessage mongo::ServiceStateMachine::_sourceCallback \
         mongo::AutoGetCollection::AutoGetCollection mongo::LockerImpl::_lockComplete \
         mongo::CondVarLockGrantNotification::wait mongo::transport::TransportLayerASIO::BatonASIO::run poll",
    ),
    (
        "execution ticket",
        "futex",
        "mongo::ServiceStateMachine::_sourceMessage mongo::ServiceStateMachine::_sourceCallback \
         mongo::ServiceStateMachine::_processMessage mongo::LockerImpl::_acquireTicket \
         mongo::TicketHolder::waitForTicketUntil sem_timedwait",
    ),
    (
        "index build",
        "poll",
        "mongo::ServiceStateMachine::_sourceMessage mongo::runCreateIndexesWithCoordinator \
         mongo::future_details::SharedStateBase::wait mongo::transport::TransportLayerASIO::BatonASIO::run poll",
    ),
    (
        "database lock",
        "futex",
        "mongo::Lock::DBLock::DBLock mongo::LockerImpl::lock mongo::LockerImpl::lockComplete",
    ),
    (
        "collection lock",
        "poll",
        "mongo::Lock::CollectionLock::CollectionLock mongo::LockerImpl::lock mongo::LockerImpl::_lockComplete",
    ),
    ("metadata lock", "futex", "mongo::Lock::ResourceLock::lock mongo::LockerImpl::lockComplete"),
    ("lock, kind unknown", "futex", "mongo::CondVarLockGrantNotification::wait pthread_cond_timedwait"),
    (
        "cache eviction by this operation",
        "futex",
        "__cursor_enter __wt_cache_eviction_worker __wt_cond_wait_signal",
    ),
    (
        "cache eviction by this operation",
        "pwrite64",
        "__wti_evict_app_assist_worker __evict_page __wt_evict __wt_reconcile",
    ),
    (
        "cache eviction by this operation",
        "futex",
        "__cursor_enter __wt_cache_full_check __wt_cache_wait __wt_cond_wait",
    ),
    ("page busy", "select", "__wt_row_search __wt_page_in_func __wt_sleep select"),
    ("page busy", "sched_yield", "__wt_row_search __wt_page_in_func"),
    (
        "read into the cache",
        "pread64",
        "__wt_page_in_func __wt_bm_read __wt_block_read_off __posix_file_read pread64",
    ),
    ("read into the cache", "pread64", "__wt_page_in_func __wti_block_read_off __posix_file_read"),
    ("journal write or flush", "fdatasync", "mongo::WiredTigerSessionCache::waitUntilDurable __wt_log_flush"),
    ("journal write or flush", "futex", "__wt_txn_commit __wt_log_write __log_slot_join"),
    (
        "journal flush by the flusher",
        "poll",
        "mongo::waitForWriteConcern mongo::JournalFlusher::waitForJournalFlush",
    ),
    (
        "write concern",
        "poll",
        "mongo::waitForWriteConcern mongo::repl::ReplicationCoordinatorImpl::awaitReplication \
         mongo::future_details::SharedStateBase::wait",
    ),
    ("oplog visibility", "poll", "mongo::WiredTigerOplogManager::waitForAllEarlierOplogWritesToBeVisible"),
    (
        "read concern",
        "poll",
        "mongo::waitForReadConcern mongo::repl::ReplicationCoordinatorImpl::waitUntilOpTimeForReadUntil",
    ),
    ("read concern", "poll", "mongo::WiredTigerSnapshotManager::waitForMajorityX"),
    ("prepare conflict", "poll", "mongo::wiredTigerPrepareConflictRetrySlow"),
    (
        "write conflict backoff",
        "clock_nanosleep",
        "mongo::WriteConflictException::logAndBackoff mongo::sleepmillis",
    ),
    ("write conflict backoff", "clock_nanosleep", "mongo::logWriteConflictAndBackoff"),
    ("session checkout", "poll", "mongo::OperationContextSession::OperationContextSession"),
    ("session checkout", "poll", "mongo::SessionCatalog::_checkOutSession"),
    (
        "index build",
        "poll",
        "mongo::IndexBuildsCoordinator::awaitNoIndexBuildInProgressForCollection mongo::IndexBuildsCoordinator::_waitX",
    ),
    ("migration critical section", "poll", "mongo::waitForMigrationCriticalSectionSignal"),
    ("shard metadata refresh", "poll", "mongo::onShardVersionMismatch"),
    ("another node", "poll", "mongo::AsyncRequestsSender::next mongo::BatonASIO::run"),
    ("checkpoint in the way", "futex", "__wt_session_get_dhandle __wt_readlock __wt_cond_wait_signal"),
    (
        "checkpoint in the way",
        "futex",
        "__session_create __wt_schema_create __wt_spin_lock pthread_mutex_lock",
    ),
    ("mutex in the server", "futex", "mongo::SessionCatalog::scan mongo::latch_detail::Mutex::lock"),
    ("mutex in the server", "futex", "mongo::f pthread_mutex_lock __lll_lock_wait"),
    ("log line", "write", "mongo::logv2::LogDomain::log"),
    ("allocator", "futex", "tcmalloc::CentralFreeList::RemoveRange SpinLock::SlowLock"),
    ("network send", "sendmsg", "mongo::transport::TransportLayerASIO::ASIOSession::sinkMessageImpl"),
    ("WiredTiger lock", "futex", "__wt_cursor_x __wt_writelock"),
    ("WiredTiger condition", "futex", "__wt_x __wt_cond_wait_signal"),
    // The stack is cut: the system call decides.
    ("mutex, ticket or condition, kind unknown", "futex", "?"),
    ("lock or another node, kind unknown", "poll", "?"),
    ("file read", "pread64", "?"),
    ("file write", "pwrite64", "?"),
    ("file flush", "fdatasync", "?"),
    ("page busy in WiredTiger, probably", "select", "?"),
    ("write conflict backoff or sleep", "clock_nanosleep", "?"),
    ("yielding the CPU", "sched_yield", "?"),
    ("memory management", "madvise", "?"),
    ("other wait", "io_uring_enter", "?"),
];

#[test]
fn stacks_of_all_versions_have_their_class() {
    for (expected, call, functions) in STACKS {
        let found = class_of(call, functions);
        assert_eq!((&*found.name, found.idle), (*expected, false), "{functions}");
    }
}

#[test]
fn threads_with_nothing_to_do_are_idle() {
    for (expected, call, functions) in [
        (
            "waiting for a request",
            "recvmsg",
            "mongo::ServiceStateMachine::_sourceMessage mongo::transport::TransportLayerASIO::ASIOSession::sourceMessage",
        ),
        ("waiting for a request", "recvmsg", "?"),
        ("waiting for a request", "recvmsg", "mongo::transport::SessionWorkflow::Impl::_receiveRequest"),
        ("awaiting data on purpose", "futex", "mongo::CappedInsertNotifier::waitUntil"),
        (
            "awaiting data on purpose",
            "poll",
            "mongo::repl::CmdIsMaster::runWithReplyBuilder \
             mongo::OperationContext::waitForConditionOrInterruptNoAssertUntil",
        ),
        ("eviction worker idle", "futex", "__wt_thread_run __wt_evict_thread_run __wt_cond_wait_signal"),
        ("background thread idle", "futex", "__ckpt_server __wt_cond_wait_signal pthread_cond_timedwait"),
        (
            "background thread idle",
            "futex",
            "mongo::FTDCController::doLoop std::condition_variable::wait_until",
        ),
        (
            "background thread idle",
            "futex",
            "mongo::ThreadPool::Impl::_consumeTasks std::condition_variable::wait",
        ),
    ] {
        let found = class_of(call, functions);
        assert_eq!((&*found.name, found.idle), (expected, true), "{functions}");
    }
    assert!(!class_of("pwrite64", "__wt_thread_run __wt_evict_thread_run __evict_page").idle);
}

#[test]
fn a_thread_that_does_not_sleep_in_a_call_needs_no_rule() {
    let of = |state, call| {
        let view = StackView { state, call, functions: &["mongo::TicketHolder::waitForTicketUntil"] };
        WaitClasses::default().classify(&view).name.to_string()
    };
    assert_eq!(of(ThreadState::OnCpu, Some("futex")), "on CPU");
    assert_eq!(of(ThreadState::Runnable, None), "waiting for a CPU");
    assert_eq!(of(ThreadState::Disk, None), "page fault");
    assert_eq!(of(ThreadState::Stopped, None), "stopped");
}

/// Every rule of the table decides the class of a stack that is made from it, or one above it does.
#[test]
fn every_rule_matches_a_stack_made_from_it() {
    let table = WaitClasses::of_text(TABLE).unwrap();
    assert!(table.rules.len() > 150 && table.classes.len() > 40);
    for rule in &table.rules {
        let mut functions: Vec<String> =
            rule.functions.iter().map(|part| part.name.replace('*', "")).collect();
        functions.reverse();
        let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
        let call = rule.call.clone().flatten().unwrap_or_else(|| "unlisted".into());
        assert!(rule.matches(Some(&call), &functions), "{rule:?}");
        let view = StackView { state: ThreadState::Sleeping, call: Some(&call), functions: &functions };
        assert_ne!(&*table.classify(&view).name, OTHER, "{rule:?}");
    }
}

#[test]
fn rules_of_a_file_come_first_and_mistakes_are_named() {
    let own = "# ours\n[our cache]\nall  ours::Cache::get\n\n[pool | idle]\n1.0  Pool::wait  call futex\n";
    let table = WaitClasses::with(own).unwrap();
    let of = |functions: &[&str]| {
        table.classify(&StackView { state: ThreadState::Sleeping, call: Some("futex"), functions })
    };
    assert_eq!(&*of(&["pthread_mutex_lock", "ours::Cache::get"]).name, "our cache");
    assert!(of(&["Pool::wait"]).idle);
    assert_eq!(&*of(&["pthread_mutex_lock"]).name, "mutex in the server");
    assert_eq!(table.names()[..2], ["our cache", "pool"]);
    for (text, line) in [
        ("x  y", 1),
        ("[a]\nno pattern", 2),
        ("[a | busy]", 1),
        ("[]", 1),
        ("[a]\n\n1  x >  > y", 3),
        ("[a", 1),
    ] {
        assert_eq!(WaitClasses::with(text).unwrap_err().line, line, "{text}");
    }
}

#[test]
fn stars_stand_for_any_characters() {
    for (pattern, name) in [
        ("*", ""),
        ("a*", "a"),
        ("*b", "aab"),
        ("a*b*c", "axxbyybzc"),
        ("__wt_block_read_off", "__wti_block_read_off"),
        ("__wt_block_read_off", "__wt_block_read_off"),
    ] {
        assert!(is_like(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in [("a*b", "ac"), ("ab", "abc"), ("a", ""), ("*ab", "ba"), ("profile", "profiler")] {
        assert!(!is_like(pattern, name), "{pattern} {name}");
    }
}

proptest! {
    #[test]
    fn any_file_and_any_stack_are_accepted(text in "[\\[\\]a-z|>* \n#]{0,200}", name in "[ -~]{0,40}") {
        if let Ok(table) = WaitClasses::with(&text) {
            let view = StackView { state: ThreadState::Sleeping, call: Some("futex"), functions: &[&name] };
            let _ = table.classify(&view);
        }
    }

    #[test]
    fn a_star_matches_what_it_replaced(a in "[a-z:]{0,8}", b in "[a-z:]{0,8}", c in "[a-z:]{0,8}") {
        let (pattern, name) = (format!("{a}*{c}"), format!("{a}{b}{c}"));
        prop_assert!(is_like(&pattern, &name));
    }
}

#[test]
fn a_thread_whose_own_function_waits_has_nothing_to_do() {
    // Seen in a 4.4.6 of which the compiler has inlined the functions of its threads.
    for functions in [
        "clone3 start_thread ? std::thread::_State_impl::_M_run mongo::ClockSource::waitForConditionUntil \
         std::_V2::condition_variable_any::wait_until pthread_cond_timedwait __futex_abstimed_wait_common",
        "clone3 start_thread ? std::thread::_State_impl::_M_run std::_V2::condition_variable_any::wait \
         pthread_cond_wait __futex_abstimed_wait_common",
        "clone3 start_thread ? std::thread::_State_impl::_M_run mongo::WaitForMajorityService::_periodicallyWaitForMajority \
         mongo::OperationContext::waitForConditionOrInterruptNoAssertUntil poll",
    ] {
        let class = class_of("futex", functions);
        assert!(class.idle && &*class.name == "background thread idle", "{functions}: {class:?}");
    }
    // What waits below another function may have been asked to do something.
    let other = "start_thread std::thread::_State_impl::_M_run mongo::Worker::merge std::_V2::condition_variable_any::wait";
    assert!(!class_of("futex", other).idle);
}

#[test]
fn a_direct_call_has_no_function_between() {
    let rules = WaitClasses::with("[direct]\n1  b >> c > e\n[other]\n1  a\n").unwrap();
    let class = |functions: &[&str]| {
        let view = StackView { state: ThreadState::Sleeping, call: Some("futex"), functions };
        rules.classify(&view).name.to_string()
    };
    // The innermost first. The direct call may be a later one of the same function.
    for functions in [&["e", "c", "b", "a"][..], &["e", "d", "c", "b", "a"], &["e", "c", "b", "x", "b", "a"]]
    {
        assert_eq!(class(functions), "direct", "{functions:?}");
    }
    for functions in [&["e", "c", "x", "b", "a"][..], &["c", "b", "a"], &["e", "b", "a"], &["b", "a"]] {
        assert_eq!(class(functions), "other", "{functions:?}");
    }
}
