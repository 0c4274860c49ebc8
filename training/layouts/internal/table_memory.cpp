#include "lockstep/training/layouts/internal/table_memory.h"

#include <algorithm>

#include "lockstep/training/layouts/internal/layout_memory.h"

namespace lockstep {
namespace {

constexpr double kNumber = 8;  // bytes of a row's number

/// The gradients of tables, in bytes.
class TableGradients {
 public:
  TableGradients(const PlannedModel& model, const PlannedTraining& training, double examples)
      : model_(model), element_(static_cast<double>(training.parameter_bytes)), examples_(examples) {}

  /// Of all tables: their rows, whose numbers have room for all lookups.
  double kept() const {
    double bytes = 0;
    for (const auto& table : model_.tables) bytes += lookups(table) + values(table);
    return bytes;
  }

  /// The most that is there besides `kept` while one is made: an index of each lookup into the rows, and
  /// where its gradient lies.
  double while_made() const {
    double most = 0;
    for (const auto& table : model_.tables) most = std::max(most, 3 * lookups(table));
    return most;
  }

  /// The most that is there besides `kept` while they are summed over the replicas: all rows, in the order of
  /// the replicas and once more sorted, with four lists of numbers for it.
  double while_summed(double replicas) const {
    if (replicas == 1) return 0;
    constexpr double kLists = 5;
    double most = 0;
    for (const auto& table : model_.tables) {
      const double rows = replicas * table.distinct_rows(examples_);
      most = std::max(most, rows * (2 * table.columns * element_ + kLists * kNumber));
    }
    return most;
  }

  /// Rows as they are sent: numbers and values.
  double sent() const {
    double bytes = 0;
    for (const auto& table : model_.tables) bytes += kNumber * table.distinct_rows(examples_) + values(table);
    return bytes;
  }

  double lookups() const {
    double bytes = 0;
    for (const auto& table : model_.tables) bytes += lookups(table);
    return bytes;
  }

 private:
  double lookups(const PlannedTable& table) const { return kNumber * table.lookups * examples_; }
  double values(const PlannedTable& table) const {
    return table.distinct_rows(examples_) * table.columns * element_;
  }

  const PlannedModel& model_;
  double element_;
  double examples_;  // of a replica, or of a process with several
};

LayoutMemory larger(const LayoutMemory& a, const LayoutMemory& b) {
  return a.peak() >= b.peak() ? a : b;
}

double bytes_of_network(const PlannedModel& model, const PlannedTraining& training) {
  double elements = 0;
  for (const size_t kind : model.parts) elements += model.kinds[kind].elements.sum();
  return elements * static_cast<double>(training.parameter_bytes);
}

}  // namespace

std::vector<LayoutMemory> predict_table_memory(const PlannedModel& model, const PlannedTraining& training,
                                               const PlannedLayout& layout, const LayoutMemory& network) {
  const double examples = examples_of_micro_batch(training, layout);
  const double dense = bytes_of_network(model, training);
  double tables = 0;
  for (const auto& table : model.tables)
    tables += table.elements() * static_cast<double>(training.parameter_bytes);
  const auto states = static_cast<double>(training.optimizer_states);
  const TableGradients gradients(model, training, examples);

  // Behind the network's backward, whose activations are gone but for the gradients of the rows.
  LayoutMemory made = network;
  made.gradients = std::max(network.gradients, dense);
  made.activations = examples * model.kinds.front().input.sum();
  made.rows = gradients.kept() + gradients.while_made();
  if (layout.servers == 0) {
    LayoutMemory summed = made;
    summed.activations = 0;
    summed.rows = gradients.kept() + gradients.while_summed(static_cast<double>(layout.replicas()));
    LayoutMemory replica = larger(larger(network, made), summed);
    replica.tables = tables;
    replica.table_state = states * tables;
    return {replica};
  }
  LayoutMemory worker = larger(network, made);
  worker.optimizer_state = 0;
  worker.rows += gradients.sent() + gradients.lookups();  // the values that this step has read
  worker.communication = 2 * dense;                       // values of the network, and gradients to be sent
  const auto servers = static_cast<double>(layout.servers);
  const auto workers = static_cast<double>(layout.data);
  const LayoutMemory server{.parameters = dense / servers,
                            .optimizer_state = states * dense / servers,
                            .communication = workers * dense / servers,
                            .tables = tables / servers,
                            .table_state = states * tables / servers,
                            .rows = (workers + 1) * gradients.sent() / servers};
  return {worker, server};
}

}  // namespace lockstep
