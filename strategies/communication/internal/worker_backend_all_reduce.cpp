#include "lockstep/strategies/communication/internal/worker_backend_all_reduce.h"

#include <c10/util/StringUtil.h>

#include <utility>

#include "lockstep/runtime/backends/internal/hierarchical_backend.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/gradient_compression.h"

namespace lockstep {

BackendChannelConfig WorkerBackendAllReduce::over_workers(const Devices& devices,
                                                          std::chrono::milliseconds timeout) const {
  BackendChannelConfig config;
  config.devices = devices;
  config.timeout = timeout;
  config.workers = std::make_unique<BackendWorkers>();
  config.workers->layout = workers_->layout();
  config.workers->calls = workers_->open_channel(name());
  config.workers->on_host = std::make_unique<HierarchicalChannel>(
      workers_->layout(), workers_->open_channel(name() + " on the host"), timeout);
  config.workers->store = workers_->open_key_space();
  config.workers->find_cause = workers_->cause_finder();
  return config;
}

std::unique_ptr<CollectiveChannel> WorkerBackendAllReduce::open(BackendChannelConfig config) const {
  try {
    return backend_->open_channel(std::move(config));
  } catch (const BackendError& error) {
    throw BackendError(c10::str(error.what(), "; the communication ring does without ", name()));
  }
}

std::unique_ptr<CollectiveChannel> WorkerBackendAllReduce::make_channel(
    const Devices& devices, std::chrono::milliseconds timeout) const {
  return make_gradient_channel(devices, timeout, nullptr);
}

std::unique_ptr<CollectiveChannel> WorkerBackendAllReduce::make_gradient_channel(
    const Devices& devices, std::chrono::milliseconds timeout,
    const std::shared_ptr<GradientCompression>& compression) const {
  auto config = over_workers(devices, timeout);
  if (compression) config.wire_dtype = compression->wire_dtype();
  return open(std::move(config));
}

}  // namespace lockstep
