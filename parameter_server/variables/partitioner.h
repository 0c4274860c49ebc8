#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {

/// What a Partitioner is asked about.
struct VariableShape {
  std::vector<int64_t> sizes;  ///< empty: a scalar
  int64_t element_bytes = 4;

  int64_t num_rows() const { return sizes.empty() ? 1 : sizes[0]; }
  /// Of one index of the first axis.
  int64_t row_bytes() const;
};

/// Says into how many shards a variable is cut along its first axis, for parameter servers to hold them.
/// Stateless: the same shape gives the same answer in every process.
class Partitioner {
 public:
  virtual ~Partitioner() = default;

  /// 1 to `shape.num_rows()`, or 1 where that is 0; a scalar is not cut.
  int64_t num_shards(const VariableShape& shape) const;

 private:
  /// For a variable of one row or more that is no scalar. What is beyond the rows is cut off.
  virtual int64_t wished_shards(const VariableShape& shape) const = 0;
};

/// As many shards for every variable.
class FixedShardsPartitioner : public Partitioner {
 public:
  /// Throws InvalidArgument for less than one.
  explicit FixedShardsPartitioner(int64_t num_shards);

 private:
  int64_t wished_shards(const VariableShape& shape) const override;

  const int64_t num_shards_;
};

struct MinSizeOptions {
  int64_t min_shard_bytes = int64_t{256} << 10;
  int64_t max_shards = 1;
};

/// As many shards as can have `min_shard_bytes` each: small variables stay whole. (TensorFlow's, which rounds
/// up, also makes shards that are smaller.)
class MinSizePartitioner : public Partitioner {
 public:
  /// Throws InvalidArgument for options below 1.
  explicit MinSizePartitioner(const MinSizeOptions& options);

 private:
  int64_t wished_shards(const VariableShape& shape) const override;

  const MinSizeOptions options_;
};

struct MaxSizeOptions {
  int64_t max_shard_bytes = int64_t{64} << 20;
  int64_t max_shards = std::numeric_limits<int64_t>::max();
};

/// As few shards as are needed for none to have more than `max_shard_bytes`, which a single row or
/// `max_shards` can still exceed.
class MaxSizePartitioner : public Partitioner {
 public:
  /// Throws InvalidArgument for options below 1.
  explicit MaxSizePartitioner(const MaxSizeOptions& options);

 private:
  int64_t wished_shards(const VariableShape& shape) const override;

  const MaxSizeOptions options_;
};

struct BalancedOptions {
  int64_t num_servers = 1;
  int64_t min_shard_bytes = int64_t{256} << 10;
  int64_t max_shard_bytes = int64_t{256} << 20;
};

/// A shard for each server, so that lookups are spread over all; fewer where shards would have less than
/// `min_shard_bytes`, and as many for every server where one would have more than `max_shard_bytes`, since
/// saving a shard takes its memory once more, and who steps one holds up who reads it. The lower limit wins.
class BalancedPartitioner : public Partitioner {
 public:
  /// Throws InvalidArgument for options below 1.
  explicit BalancedPartitioner(const BalancedOptions& options);

 private:
  int64_t wished_shards(const VariableShape& shape) const override;

  const BalancedOptions options_;
};

/// Rows `begin` to `end` - 1 of a variable.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

/// As equal as can be: what is left over goes to the first shards, a row each. Throws InvalidArgument for
/// negative rows and less than one shard.
std::vector<RowRange> cut_rows(int64_t num_rows, int64_t num_shards);

/// "table/part_3" for shard 3 of a variable that is cut, "table" for one that is not.
std::string shard_name(const std::string& variable, int64_t shard, int64_t num_shards);

}  // namespace lockstep
