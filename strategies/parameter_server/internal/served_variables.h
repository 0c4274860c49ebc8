#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/service/parameter_client.h"
#include "lockstep/parameter_server/variables/initial_values.h"
#include "lockstep/parameter_server/variables/served_table.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/strategies/nn/table_lookups.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace lockstep {

/// The parameters of a process's replicas that live on parameter servers. Thread-safe: values are read and
/// gradients are sent over connections of their own, at the same time.
class ServedVariables : public TableReader {
 public:
  /// Throws as ParameterClient.
  explicit ServedVariables(const ParameterClientOptions& options) : reader_(options), writer_(options) {}

  struct NewVariable {
    std::string name;
    std::vector<at::Tensor> replicas;  ///< the parameter of each local replica
    UpdateRule rule;
    /// What a table begins with, which the parameters stand for; none: the first replica's values.
    std::optional<InitialValues> initial;
    RowFilter filter{};  ///< of a table
  };
  /// All processes add the same ones in the same order. With `creates` puts it onto the servers, too. Throws
  /// InvalidArgument for a name or a parameter that is there already, and as ParameterClient::create().
  ParameterClient::CreateSummary add(const NewVariable& variable, bool creates);

  /// What a run begins with, read before.
  class Values;
  /// Reads all parameters but tables, and the rows of these lookups, in one exchange. Blocks. Throws as
  /// ParameterClient::pull(), and as pinned_for().
  std::shared_ptr<const Values> read_ahead(const TableLookups& lookups);
  /// Copies the servers' values into the replicas' parameters, but for tables: these ones, or without any
  /// what it reads now. Blocks; GPUs copy on the calling thread's current streams, for which it does not
  /// wait. Throws as ParameterClient::pull().
  void refresh(std::shared_ptr<const Values> values = nullptr);
  TableRows look_up(const ServedTable& table, const at::Tensor& ids) override;
  at::Tensor read_rows(const ServedTable& table, int64_t begin, int64_t end) override;

  /// Gradients to be sent.
  using Gradients = std::vector<ParameterClient::Gradient>;
  /// Copies the gradients of the first replica's optimizer, with the learning rates that it has now, to the
  /// host: waits for what a GPU's current stream has to do. Throws
  /// InvalidArgument for an optimizer whose gradients were copied already and not taken, and for gradients by
  /// values that were not read since the last refresh().
  void note_gradients(const torch::optim::Optimizer& optimizer);
  Gradients take_gradients();
  /// See ParameterClient.
  ParameterClient::PushSummary push(const PushId& id, const Gradients& gradients);
  void contribute(uint64_t step, uint32_t slot, const Gradients& gradients);
  std::vector<uint32_t> commit(uint64_t step, uint32_t num_slots);
  void forget_before(uint64_t closure);
  void end_servers();
  int64_t num_reconnects() const;

  /// How long refresh() and look_up() have waited for servers, in seconds, in all threads together.
  double seconds_waited() const;

 private:
  struct Variable {
    int number = 0;  // the clients'
    std::string name;
    bool is_table = false;
    std::vector<c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>> replicas;
    std::vector<uint64_t> versions;  // of the values that were read since the last refresh, by shard

    /// Of the replicas' parameters that there still are.
    std::vector<c10::Device> devices() const;
  };

  size_t place_of(const at::Tensor& parameter) const LOCKSTEP_REQUIRES(mutex_);
  std::vector<ParameterClient::Pulled> pull(const std::vector<ParameterClient::Wanted>& wanted);
  void use(const Values& values) LOCKSTEP_REQUIRES(mutex_);
  /// A GPU's current stream makes them.
  Gradients copies_of_gradients(const torch::optim::Optimizer& optimizer) const LOCKSTEP_REQUIRES(mutex_);

  Mutex reader_mutex_;
  ParameterClient reader_ LOCKSTEP_GUARDED_BY(reader_mutex_);
  mutable Mutex writer_mutex_;
  ParameterClient writer_ LOCKSTEP_GUARDED_BY(writer_mutex_);
  mutable Mutex mutex_;
  std::vector<Variable> variables_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<const at::TensorImpl*, size_t> places_ LOCKSTEP_GUARDED_BY(mutex_);  // among the variables
  std::shared_ptr<const Values> values_ LOCKSTEP_GUARDED_BY(mutex_);  // of this run, whose rows can be used
  Gradients gradients_ LOCKSTEP_GUARDED_BY(mutex_);
  double seconds_waited_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
