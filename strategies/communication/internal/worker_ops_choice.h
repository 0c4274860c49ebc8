#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/communication/communication_options.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// The op that carries values between the replicas of a job, and why it is chosen.
struct WorkerOpsChoice {
  std::shared_ptr<CrossDeviceOps> ops;
  std::string reason;
  /// The size of gradient buckets that suits the op. None: the default.
  std::optional<int64_t> bucket_bytes{};
};

/// Throws InvalidArgument if `given`, the user's op or null, supports only one process or contradicts the
/// communication options. Also throws it if the requested op does not support this worker's devices or the
/// gradient compression. Error messages begin with `strategy`.
void check_over_workers(const std::string& strategy, const Devices& devices,
                        const CommunicationOptions& communication,
                        const std::shared_ptr<CrossDeviceOps>& given);

/// Chooses the op; all workers choose the same. A collective of the workers. Call check_over_workers() first.
WorkerOpsChoice choose_over_workers(const std::shared_ptr<WorkerGroup>& workers, const Devices& devices,
                                    const CommunicationOptions& communication,
                                    const std::shared_ptr<CrossDeviceOps>& given);

}  // namespace lockstep
