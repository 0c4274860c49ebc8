#pragma once

// Internal: only sources of its layer need it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parameter_server/initial_values.h"
#include "lockstep/parameter_server/parameter_client.h"
#include "lockstep/parameter_server/served_table.h"
#include "lockstep/runtime/mutex.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace lockstep {

/// The parameters of a process's replicas that live on parameter servers. Thread-safe.
class ServedVariables : public TableReader {
 public:
  /// Throws as ParameterClient.
  explicit ServedVariables(const ParameterClientOptions& options) : client_(options) {}

  struct NewVariable {
    std::string name;
    std::vector<at::Tensor> replicas;  ///< the parameter of each local replica
    UpdateRule rule;
    /// What a table begins with, which the parameters stand for; none: the first replica's values.
    std::optional<InitialValues> initial;
  };
  /// All processes add the same ones in the same order. With `creates` puts it onto the servers, too. Throws
  /// InvalidArgument for a name or a parameter that is there already, and as ParameterClient::create().
  ParameterClient::CreateSummary add(const NewVariable& variable, bool creates);

  /// Copies the servers' values into the replicas' parameters, but for tables. Blocks. Throws as
  /// ParameterClient::pull().
  void refresh();
  at::Tensor read_rows(const at::Tensor& parameter, const at::Tensor& rows) override;

  /// Copies the gradients of the first replica's optimizer, and the learning rates that it has now, to be
  /// sent. Throws InvalidArgument for an optimizer whose gradients were taken already and not sent, and for
  /// gradients by values that were not read since the last refresh().
  void take_gradients(const torch::optim::Optimizer& optimizer);
  bool has_gradients() const;
  /// Those that were taken are not sent.
  void forget_gradients();
  /// Sends what was taken; see ParameterClient::push() and contribute().
  ParameterClient::PushSummary push(const PushId& id);
  void contribute(uint64_t step, uint32_t slot);

  /// As ParameterClient's.
  std::vector<uint32_t> commit(uint64_t step, uint32_t num_slots);
  void forget_before(uint64_t closure);
  void end_servers();
  int64_t num_reconnects() const;

 private:
  struct Variable {
    int number = 0;  // the client's
    std::string name;
    bool is_table = false;
    std::vector<c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>> replicas;
    std::vector<uint64_t> versions;  // of the values that were read last, by shard
  };

  Variable& variable_of(const at::Tensor& parameter) LOCKSTEP_REQUIRES(mutex_);

  mutable Mutex mutex_;
  ParameterClient client_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Variable> variables_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<const at::TensorImpl*, size_t> places_ LOCKSTEP_GUARDED_BY(mutex_);  // among the variables
  std::vector<ParameterClient::Gradient> gradients_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
