#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/runtime/rpc/rpc_message.h"
#include "lockstep/strategies/coordinator/closure_values.h"

namespace lockstep {

/// A number that nobody else comes upon.
uint64_t new_session();

/// A worker asks for the next closure.
struct AskForClosure {
  uint64_t session = 0;        ///< of the worker's process
  std::string worker;          ///< such as "worker 1"
  uint64_t coordinator = 0;    ///< the session of the coordinator that it has these from:
  std::vector<uint64_t> held;  ///< closures that have come, and whose end it has not reported
};

/// What became of a closure that a worker has run.
struct EndedClosure {
  uint64_t coordinator = 0;  ///< the session of the coordinator that gave it
  uint64_t closure = 0;
  ClosureValues results;
  std::exception_ptr error;  ///< null: it has returned
};

/// A worker says what became of a closure.
struct ReportEnd {
  uint64_t session = 0;
  std::string worker;
  EndedClosure ended;
};

/// A worker lives.
struct WorkerBeat {
  uint64_t session = 0;
  std::string worker;
};

/// A worker that holds nothing goes.
struct LeaveJob {
  uint64_t session = 0;
};

/// What the workers of a coordinator ask it.
using WorkerRequest = std::variant<AskForClosure, ReportEnd, WorkerBeat, LeaveJob>;

/// Throws InvalidArgument for a tensor that is undefined or not dense.
void check_closure_values(const ClosureValues& values);

/// Tensors go as they are on the CPU. Throws as check_closure_values().
RpcMessage encode_worker_request(const WorkerRequest& request);
/// Throws InvalidArgument for what encode_worker_request() does not write. An error comes as throw_error()
/// throws it, beginning with the worker.
WorkerRequest decode_worker_request(const RpcMessage& message);

/// The answer to AskForClosure.
struct GivenClosure {
  enum class Kind : uint8_t {
    kClosure = 0,
    kNone = 1,  ///< there is none yet: ask again
    kEnd = 2,   ///< there will be none any more
  };
  Kind kind = Kind::kNone;
  uint64_t coordinator = 0;  ///< its session
  uint64_t closure = 0;
  std::string function;
  ClosureValues arguments;
};

/// As encode_worker_request() and decode_worker_request().
RpcMessage encode_given(const GivenClosure& given);
GivenClosure decode_given(const RpcMessage& message);

}  // namespace lockstep
