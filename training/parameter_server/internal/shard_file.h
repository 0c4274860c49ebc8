#pragma once

#include <functional>
#include <optional>

#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/variables/update_rule.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/formats/state_view.h"

namespace lockstep {

/// Returns a shard's saved state as stored in a file: {"values", "optimizer", "version", "pushes"}. The
/// tensors share memory with `saved`.
StateValue::Dict state_of_shard(const ParameterShard::Saved& saved);
/// Throws CheckpointError naming the entry that state_of_shard() cannot have written.
/// ParameterShard::restore() checks whether the state fits a shard. `read`, if there is one, returns the
/// values of a tensor that was not read yet.
ParameterShard::Saved shard_in(const StateView& saved,
                               const std::function<torch::Tensor(const torch::Tensor&)>& read = {});

/// Returns a rule as its name and numbers, such as {"name": "sgd", "momentum": 0.9, ...}.
StateValue::Dict state_of_rule(const UpdateRule& rule);
UpdateRule rule_in(const StateView& saved);

/// Returns the filter of some rows of a table; None: all of them are trained.
StateValue state_of_filter(const std::optional<FilteredRows>& filtered);
std::optional<FilteredRows> filter_in(const StateView& saved, const RowRange& rows);

StateValue::Dict state_of_growth(const RowGrowth& growth);
/// Returns the growth that the description of a shard has under "growth"; none if it has none.
std::optional<RowGrowth> growth_in(const StateView& described);

}  // namespace lockstep
