#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {

/// A parameter of a unit, with its first name.
struct UnitParameter {
  std::string name;
  at::Tensor tensor;
};

/// Parameters of one dtype in one piece of memory, of which this rank keeps an equal part.
///
/// The parameters lie one after another, in the order in which they are given, each in its own order of
/// memory. Each begins at a multiple of kAlignment bytes, and so does each rank's part. A rank's shard of a
/// parameter is what its part has of it: often all of a parameter or nothing. So a gather copies all parts
/// straight into place, and a shard is a view of the rank's part.
///
/// The parameters stay the objects that they are. While they are free, reading or writing them throws; their
/// views, such as those that backward keeps, have no memory.
class UnitParameters {
 public:
  static constexpr int64_t kAlignment = 64;

  /// The rank's place among those that share the parameters.
  struct Part {
    std::string unit;  ///< for errors
    std::string axis;
    int index = 0;
    int size = 1;
  };

  /// Cuts the parameters and frees them. They are dense leaves of one dtype and device, without aliases.
  UnitParameters(std::vector<UnitParameter> parameters, Part part);
  UnitParameters(const UnitParameters&) = delete;
  UnitParameters& operator=(const UnitParameters&) = delete;

  const std::vector<UnitParameter>& parameters() const { return parameters_; }
  /// The rank's shard of each, a leaf that requires a gradient as the parameter did.
  const std::vector<at::Tensor>& shards() const { return shards_; }
  /// Bytes of the whole parameters.
  int64_t num_bytes() const { return part_elements_ * part_.size * element_size_; }
  void rename(const std::string& unit);

  /// Follows shards that were moved to another device or dtype. Call it while the parameters are free.
  void follow_shards();
  /// Frees this rank's part: shards become empty. Call it while the parameters are free, which they then
  /// stay.
  void give_up();
  /// Returns false if shards were moved since.
  bool are_shards_in_place() const;

  /// Begins to gather the parameters, and returns the work to wait for; null if this rank has all of them. On
  /// CPUs, ranks of one process share the gathered memory.
  c10::intrusive_ptr<c10d::Work> begin_gather(c10d::Backend* backend);
  /// Returns how many ranks share the memory of a gather over `backend`.
  int num_sharing(c10d::Backend* backend) const;
  /// Gives the parameters what was gathered, or hidden.
  void end_gather();
  /// Makes the parameters unusable, as if they were free.
  void hide();
  /// Frees the memory.
  void free();
  /// Leaves the memory to a collective that failed, which may still use it.
  void abandon();

  struct Sums {
    c10::intrusive_ptr<c10d::Work> work;  ///< null if the sums are there
    at::Tensor sent;                      ///< keeps the memory that the work reads
    std::vector<at::Tensor> of_shards;    ///< valid once the work is done
  };
  /// Begins to sum the parameters' gradients, undefined for zeros, over the ranks. Drops `gradients` as it
  /// copies them. With `in_place` it takes the parameters' memory for whole gradients.
  Sums begin_sum(c10d::Backend* backend, std::vector<at::Tensor>& gradients, bool in_place);

 private:
  at::TensorOptions options() const { return own_part_.options(); }
  at::Tensor shard_of(const at::Tensor& part, size_t index) const;
  int64_t offset_of(size_t index) const;
  void mark(size_t index) const;
  void make_storage();
  void make_guards();
  void place(const c10::Storage& storage);
  void place(size_t index, const c10::Storage& storage) const;

  std::vector<UnitParameter> parameters_;
  Part part_;
  std::vector<int64_t> begins_;  // of the parameters, in elements
  std::vector<std::vector<int64_t>> sizes_;
  std::vector<std::vector<int64_t>> strides_;
  std::vector<ShardedParameter> places_;  // of the rank's shards
  int64_t part_elements_ = 0;
  int64_t element_size_ = 0;
  at::Tensor own_part_;  // [part_elements_]
  std::vector<at::Tensor> shards_;
  at::Tensor whole_;  // [size * part_elements_], whose storage is empty while the parameters are free
  std::shared_ptr<const at::Tensor>
      gathered_;  // the memory that a gather into shared memory will give whole_
  bool is_given_up_ = false;
  bool is_shared_ = false;            // whether the memory is, or will be, that of other ranks, too
  std::vector<c10::Storage> guards_;  // what free parameters have for memory
};

}  // namespace lockstep
