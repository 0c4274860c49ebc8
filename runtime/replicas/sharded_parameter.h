#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The place of a tensor that holds a rank's part of a parameter. The ranks along `axis` together hold all of
/// it. A part is either a slice of the parameter's memory, which no rank computes with, or rows along a
/// dimension, with which a layer computes its part of the result. Such rows may be sliced, too, along another
/// axis.
struct ShardedParameter {
  std::string name;              ///< of the parameter, in the module that cut it
  std::vector<int64_t> sizes;    ///< of the whole parameter
  std::vector<int64_t> strides;  ///< of the whole parameter, which is dense
  /// First of this rank's elements, among the parameter's elements in the order of memory.
  int64_t offset = 0;
  int64_t length = 0;  ///< number of this rank's elements; 0 on ranks that hold none
  std::string axis;    ///< axis of the mesh whose ranks hold the other parts
  /// The dimension along which the parameter is cut. `offset` and `length` count along it, and the tensor has
  /// the parameter's other sizes. None: a slice of the memory, in one dimension.
  std::optional<int64_t> dim = std::nullopt;
  /// Lengths of consecutive sections of the dimension, each of which is cut by itself, such as the queries,
  /// keys and values of a fused layer. A part is then the rank's share of each section, one after another,
  /// and `offset` and `length` count these shares. Empty: one section.
  std::vector<int64_t> sections = {};
  /// For a slice of the memory of rows along a dimension: these rows, among whose elements `offset` and
  /// `length` count. `axis` is then that of the slices, and `cut->axis` that of the rows. Null: a slice of
  /// the whole parameter, or no slice.
  std::shared_ptr<const ShardedParameter> cut = nullptr;
  /// Axis of the mesh whose ranks have the stages of a pipeline. The rank of the parameter's stage holds what
  /// the other fields say, and ranks of other stages hold nothing: their `length` is 0. If no other axis
  /// divides the parameter, it is `axis`, too, and `dim` is 0. Empty: the parameter belongs to no stage.
  std::string stage_axis = {};
  /// Whether another rank along `stage_axis` holds the same elements, which count as that rank's: a parameter
  /// that several stages share.
  bool is_copy = false;

  int64_t num_elements() const;  ///< of the whole parameter
  /// Number of the elements that the ranks along `axis` hold together: those of the whole parameter, or of
  /// the rows that are sliced.
  int64_t num_elements_along_axis() const;
};

/// Consecutive indices along the dimension of a cut.
struct CutRange {
  int64_t offset = 0;      ///< in the whole parameter
  int64_t own_offset = 0;  ///< in the rank's part
  int64_t length = 0;
};

/// Returns the ranges of a parameter that is cut along a dimension of which a rank's part consists, in the
/// part's order.
std::vector<CutRange> ranges_of_cut(const ShardedParameter& cut);

/// Returns the sizes of a rank's part of a parameter that is cut along a dimension.
std::vector<int64_t> sizes_of_cut(const ShardedParameter& cut);

/// Returns a copy of a rank's part of a parameter that is cut along a dimension, of its whole values.
at::Tensor part_of_cut(const at::Tensor& whole, const ShardedParameter& cut);

/// Returns a copy of a rank's part of a parameter, of its whole values.
at::Tensor part_of_values(const at::Tensor& whole, const ShardedParameter& part);

/// Returns the place of `length` elements of `parameter` from `offset` on, in the order of its memory, if the
/// ranks along `axis` have slices of it. The parameter may be rows along a dimension, which are contiguous.
ShardedParameter slice_of_parameter(const at::Tensor& parameter, std::string name, std::string axis,
                                    int64_t offset, int64_t length);

/// Marks `tensor` as such a part. Aliases made by detach() have the mark, too.
/// Copies do not have it, and set_data() drops it.
void mark_shard(const at::Tensor& tensor, ShardedParameter shard);

/// Returns what mark_shard() was given, or null if `tensor` is no part of a parameter. Valid as long as the
/// tensor. Any thread may call it.
///
/// Example:
///
///     for (const auto& parameter : model->parameters()) {
///       const auto* shard = sharded_parameter_of(parameter);
///       count += shard != nullptr ? shard->num_elements() : parameter.numel();
///     }
const ShardedParameter* sharded_parameter_of(const at::Tensor& tensor);

/// Returns whether the tensor is part of a parameter.
inline bool is_shard(const at::Tensor& tensor) {
  return sharded_parameter_of(tensor) != nullptr;
}

/// Returns whether the tensor is a slice of a parameter's memory.
inline bool is_slice(const at::Tensor& tensor) {
  const auto* shard = sharded_parameter_of(tensor);
  return shard != nullptr && !shard->dim;
}

/// Returns whether the tensor is part of a parameter that is cut along a dimension.
inline bool is_cut(const at::Tensor& tensor) {
  const auto* shard = sharded_parameter_of(tensor);
  return shard != nullptr && shard->dim;
}

/// Returns the place of the rows along a dimension that the tensor has, or of which it is a slice. Null for
/// other tensors. Valid as long as the tensor.
const ShardedParameter* cut_of(const at::Tensor& tensor);

/// Returns the axis along which other ranks have other rows of the parameter, of which the tensor is a part.
/// Empty if there is none: stages of a pipeline do not count.
std::string axis_of_rows(const at::Tensor& tensor);

/// Returns the axis along which ranks have the stages of a pipeline, of which one has the parameter. Empty if
/// it belongs to no stage.
std::string axis_of_stages(const at::Tensor& tensor);

/// Returns the sizes of the whole parameter, or those of a tensor that is no part of one.
inline at::IntArrayRef whole_sizes(const at::Tensor& tensor) {
  const auto* shard = sharded_parameter_of(tensor);
  return shard != nullptr ? at::IntArrayRef(shard->sizes) : tensor.sizes();
}

}  // namespace lockstep
