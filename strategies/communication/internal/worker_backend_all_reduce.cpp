#include "lockstep/strategies/communication/internal/worker_backend_all_reduce.h"

#include <c10/util/StringUtil.h>

#include <utility>

#include "lockstep/runtime/backends/internal/hierarchical_backend.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/strategies/communication/internal/group_parts.h"

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

std::unique_ptr<CollectiveChannel> WorkerBackendAllReduce::make_grouped_channel(
    const Devices& devices, const ReplicaGroups& groups, std::chrono::milliseconds timeout) const {
  return open_groups(
      *workers_->layout(), groups, [&](const GroupPart& part) -> std::unique_ptr<CollectiveChannel> {
        BackendChannelConfig config{.timeout = timeout};
        for (const int local : part.locals) config.devices.push_back(devices[static_cast<size_t>(local)]);
        if (part.workers.size() > 1) {
          auto calls = workers_->open_channel(name() + groups.where, part.workers);
          auto on_host = workers_->open_channel(name() + groups.where + " on the host", part.workers);
          auto store = workers_->open_key_space();
          if (part.layout == nullptr) return nullptr;
          config.workers = std::make_unique<BackendWorkers>();
          config.workers->layout = part.layout;
          config.workers->calls = std::move(calls);
          config.workers->on_host =
              std::make_unique<HierarchicalChannel>(part.layout, std::move(on_host), timeout);
          config.workers->store = std::move(store);
          config.workers->find_cause = workers_->cause_finder();
        }
        return open(std::move(config));
      });
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
