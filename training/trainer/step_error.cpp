#include "lockstep/training/trainer/step_error.h"

#include <c10/core/ScalarType.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <exception>
#include <initializer_list>

#include "lockstep/runtime/devices/device_error.h"
#include "lockstep/runtime/devices/error_text.h"

namespace lockstep::detail {
namespace {

bool has_any_of(const std::string& text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

/// Returns whether the error is of a class that is not about the step's own operations, or becomes one.
bool is_explained_elsewhere(const std::exception_ptr& error, const ReplicaContext& replica) {
  try {
    rethrow_from_device(error, {"", replica.replica_id(), replica.logical_device()});
  } catch (const c10::DistError&) {
    return true;
  } catch (const c10::Error& other) {
    return has_any_of(other.what_without_backtrace(), {"captur"});
  } catch (...) {
    return true;  // OutOfMemory or DeviceFailure
  }
}

std::string description_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return c10::str(c10::getDtypeNames(tensor.scalar_type()).first, " ", tensor.sizes());
}

/// Returns the rule that labels of another dtype or shape break, or nothing for other mistakes.
std::string rule_of_labels(const std::string& message) {
  const bool is_of_labels = has_any_of(message, {"expected scalar type Long but found",
                                                 "multi-target not supported", "nll_loss", "1D target"});
  if (!is_of_labels) return "";
  return "; class labels must be int64 of shape [n]: use labels.to(torch::kLong), and labels.squeeze(1) for "
         "shape [n, 1]";
}

/// Returns the rule that inputs of another dtype than the parameters' break, or nothing for other mistakes.
std::string rule_of_inputs(const std::string& message) {
  if (!has_any_of(message,
                  {"must have the same dtype", "to have the same dtype", "and bias type", "and weight type"}))
    return "";
  return "; a model's inputs need the dtype of its parameters: use data.to(torch::kFloat) if that is float32";
}

}  // namespace

void rethrow_step_error(const char* step, const ReplicaContext& replica, int64_t num_examples,
                        const NamedShardTensors& shard) {
  const std::exception_ptr error = std::current_exception();
  // BatchNorm and some views fail on such shards, about which Strategy::run() has advice.
  if (num_examples <= 1 || is_explained_elsewhere(error, replica)) std::rethrow_exception(error);
  std::string reason = error_line(error);
  while (reason.ends_with('.')) reason.pop_back();
  std::string text =
      c10::str("[Trainer] replica ", replica.replica_id(), " (", replica.logical_device().str(),
               ") failed in ", step, ": ", reason, "; its shard has ");
  for (size_t i = 0; i < shard.size(); ++i)
    text += c10::str(i == 0 ? "" : " and ", shard[i].first, " ", description_of(shard[i].second));
  if (shard.empty()) text += c10::str(num_examples, " examples");
  std::throw_with_nested(StepError(text + rule_of_labels(reason) + rule_of_inputs(reason)));
}

}  // namespace lockstep::detail
