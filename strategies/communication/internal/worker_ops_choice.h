#pragma once

#include <memory>
#include <string>

#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/communication/communication_options.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// What carries values between the replicas of a job, and why.
struct WorkerOpsChoice {
  std::shared_ptr<CrossDeviceOps> ops;
  std::string reason;
};

/// Throws InvalidArgument where `given`, the user's op or null, knows one process only or does not go with
/// the communication, and where what they ask for cannot serve this worker's devices or the gradient
/// compression. `strategy` begins errors.
void check_over_workers(const std::string& strategy, const Devices& devices,
                        const CommunicationOptions& communication,
                        const std::shared_ptr<CrossDeviceOps>& given);

/// A collective of the workers, which all choose the same, once check_over_workers() has found nothing.
WorkerOpsChoice choose_over_workers(const std::shared_ptr<WorkerGroup>& workers, const Devices& devices,
                                    const CommunicationOptions& communication,
                                    const std::shared_ptr<CrossDeviceOps>& given);

}  // namespace lockstep
