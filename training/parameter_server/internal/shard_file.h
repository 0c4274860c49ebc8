#pragma once

#include <optional>

#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/variables/update_rule.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/formats/state_view.h"

namespace lockstep {

/// What a shard has saved, as a file holds it: {"values", "optimizer", "version", "pushes"}. Tensors share
/// their memory.
StateValue::Dict state_of_shard(const ParameterShard::Saved& saved);
/// Throws CheckpointError naming what is not as state_of_shard() writes it. Whether it fits a shard is for
/// ParameterShard::restore() to say.
ParameterShard::Saved shard_in(const StateView& saved);

/// A rule by its name and its numbers, such as {"name": "sgd", "momentum": 0.9, ...}.
StateValue::Dict state_of_rule(const UpdateRule& rule);
UpdateRule rule_in(const StateView& saved);

/// Of the filter that some rows of a table have; None: all of them are trained.
StateValue state_of_filter(const std::optional<FilteredRows>& filtered);
std::optional<FilteredRows> filter_in(const StateView& saved, const RowRange& rows);

}  // namespace lockstep
