#include "lockstep/strategies/core/internal/run_failure.h"

#include <c10/util/StringUtil.h>

#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/device_error.h"
#include "lockstep/runtime/devices/error_text.h"
#include "lockstep/runtime/gradients/pending_gradient.h"

namespace lockstep {
namespace {

/// Returns how likely the error is the cause of the others.
int weight_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveAborted&) {
    return 0;
  } catch (const BackendError&) {
    return 1;
  } catch (...) {
    return 2;
  }
}

/// LibTorch's complaints about a module or its input, as opposed to those of its collectives.
bool is_module_error(const c10::Error& error) {
  return dynamic_cast<const c10::DistError*>(&error) == nullptr;
}

/// Returns what to write instead of the operation that failed on a shard of at most one example.
std::string way_out(const std::string& message) {
  // view({x.size(0), -1}) and reshape() of no elements: any size would do for the -1.
  if (message.find("cannot reshape tensor of 0 elements") != std::string::npos)
    return "Write x.flatten(1) for x.view({x.size(0), -1}), whose -1 has no value if there are no examples.";
  return "If the module cannot train on so few, use a dataset with .drop_remainder = true or a larger global "
         "batch.";
}

}  // namespace

void RunFailure::record(int replica, std::exception_ptr error) {
  const int weight = weight_of(error);
  MutexLock lock(mutex_);
  if (error_ && weight <= weight_) return;
  error_ = std::move(error);
  replica_ = replica;
  weight_ = weight;
}

bool RunFailure::happened() const {
  MutexLock lock(mutex_);
  return error_ != nullptr;
}

std::string RunFailure::name_of(int local) const {
  const int rank = first_replica_ + local;
  if (mesh_ == nullptr || !mesh_->cuts_models()) return c10::str("replica ", rank);
  const auto coordinates = mesh_->coordinates(rank);
  std::vector<std::string> texts;
  for (size_t i = 0; i < coordinates.size(); ++i)
    texts.push_back(mesh_->axes()[i].name + "=" + std::to_string(coordinates[i]));
  return c10::str("rank ", rank, " (", c10::Join(",", texts), ")");
}

std::string RunFailure::reason() const {
  MutexLock lock(mutex_);
  if (replica_ < 0) return c10::str("the run failed: ", error_text(error_));
  return name_of(replica_) + " failed: " + error_text(error_);
}

void RunFailure::rethrow(const std::string& strategy, const Devices& devices,
                         const std::optional<BatchSizes>& sizes) const {
  MutexLock lock(mutex_);
  const auto replica = static_cast<size_t>(replica_);
  try {
    if (replica_ < 0) std::rethrow_exception(error_);
    rethrow_from_device(error_, {strategy, first_replica_ + replica_, devices[replica]});
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    rethrow_pending(message);
    // A parameter was used outside of its sharded unit.
    if (message.starts_with("[Sharded]")) throw InvalidArgument(message.substr(0, message.find('\n')));
    if (replica_ < 0 || !sizes || sizes->local.at(replica) > 1 || !is_module_error(error)) throw;
    throw std::runtime_error(c10::str("[", strategy, "] ", name_of(replica_), " (", devices[replica].str(),
                                      ") failed on a shard of ", sizes->local[replica], " of the ",
                                      sizes->global, " examples in its global batch: ", error_text(error_),
                                      "\n", way_out(error_text(error_))));
  } catch (const CollectiveMismatch& error) {
    throw CollectiveMismatch(c10::str("[", strategy, "] run #", run_, ": ", error.what()));
  }
}

}  // namespace lockstep
