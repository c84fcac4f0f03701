//! What plain names of functions mean to a reader of a stack.

/// Functions that only pass a call on; in shortened stacks they are left out. A trailing `*` stands for anything.
const MACHINERY: [&str; 24] = [
    "std::_Function_handler*",
    "std::function*",
    "std::__invoke*",
    "std::invoke*",
    "std::_Bind*",
    "std::apply*",
    "std::__apply*",
    "std::__detail::__variant*",
    "std::thread::*",
    "mongo::future_details::*",
    "mongo::unique_function*",
    "mongo::stdx::thread::*",
    "mongo::ServiceExecutor*",
    "mongo::transport::ServiceExecutor*",
    "mongo::transport::service_executor_details::*",
    "mongo::ServiceStateMachine*",
    "mongo::transport::ServiceStateMachine*",
    "mongo::transport::SessionWorkflow*",
    "mongo::transport::DedicatedThreadExecutorPool*",
    "mongo::runFunc",
    "start_thread",
    "clone",
    "clone3",
    "execute_native_thread_routine",
];

/// Whether the function, by its plain name, only passes a call on.
pub fn is_machinery(plain: &str) -> bool {
    MACHINERY.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => plain.starts_with(beginning),
        None => plain == *pattern,
    })
}

/// A plain name without MongoDB's own namespace.
pub fn without_namespace(plain: &str) -> &str {
    plain.strip_prefix("mongo::").unwrap_or(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_pass_calls_on_are_known() {
        for name in [
            "std::_Function_handler::_M_invoke",
            "mongo::transport::ServiceStateMachine::Impl::startNewLoop",
            "mongo::future_details::SharedStateBase::transitionToFinished",
            "start_thread",
        ] {
            assert!(is_machinery(name), "{name}");
        }
        for name in ["mongo::runCommand", "start_threads", "mongo::ServiceEntryPointMongod::handleRequest"] {
            assert!(!is_machinery(name), "{name}");
        }
        assert_eq!(without_namespace("mongo::Lock::DBLock"), "Lock::DBLock");
    }
}
