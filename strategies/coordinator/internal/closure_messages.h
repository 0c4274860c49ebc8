#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/runtime/rpc/rpc_message.h"
#include "lockstep/strategies/coordinator/closure_values.h"

namespace lockstep {

/// Returns a unique number.
uint64_t new_session();

/// A worker's request for the next closure.
struct AskForClosure {
  uint64_t session = 0;        ///< session of the worker's process
  std::string worker;          ///< such as "worker 1"
  uint64_t coordinator = 0;    ///< session of the coordinator that gave it `held`
  std::vector<uint64_t> held;  ///< received closures whose end it has not reported
};

/// Result of a closure that a worker has run.
struct EndedClosure {
  uint64_t coordinator = 0;  ///< session of the coordinator that gave it
  uint64_t closure = 0;
  ClosureValues results;
  std::exception_ptr error;  ///< null: the closure returned
};

/// A worker's report of a closure's result.
struct ReportEnd {
  uint64_t session = 0;
  std::string worker;
  EndedClosure ended;
};

/// A worker's sign of life.
struct WorkerBeat {
  uint64_t session = 0;
  std::string worker;
};

/// Sent by a worker that holds no closures and leaves the job.
struct LeaveJob {
  uint64_t session = 0;
};

/// A request from a worker to its coordinator.
using WorkerRequest = std::variant<AskForClosure, ReportEnd, WorkerBeat, LeaveJob>;

/// Throws InvalidArgument for a tensor that is undefined or not dense.
void check_closure_values(const ClosureValues& values);

/// Tensors are sent as CPU tensors. Throws as check_closure_values() does.
RpcMessage encode_worker_request(const WorkerRequest& request);
/// Throws InvalidArgument if encode_worker_request() did not write the message. Decodes an error as
/// throw_error() throws it; its text begins with the worker.
WorkerRequest decode_worker_request(const RpcMessage& message);

/// The answer to AskForClosure.
struct GivenClosure {
  enum class Kind : uint8_t {
    kClosure = 0,
    kNone = 1,  ///< none yet: ask again
    kEnd = 2,   ///< there will be no more
  };
  Kind kind = Kind::kNone;
  uint64_t coordinator = 0;  ///< session of the coordinator
  uint64_t closure = 0;
  std::string function;
  ClosureValues arguments;
};

/// As encode_worker_request() and decode_worker_request().
RpcMessage encode_given(const GivenClosure& given);
GivenClosure decode_given(const RpcMessage& message);

}  // namespace lockstep
