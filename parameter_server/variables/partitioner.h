#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {

/// Shape of a variable to cut.
struct VariableShape {
  std::vector<int64_t> sizes;  ///< empty for a scalar
  int64_t element_bytes = 4;

  int64_t num_rows() const { return sizes.empty() ? 1 : sizes[0]; }
  /// Returns the bytes of one index of the first axis.
  int64_t row_bytes() const;
};

/// Decides how many shards a variable is cut into along its first axis, for parameter servers to hold.
/// Stateless: the same shape gives the same answer in every process.
///
/// Example:
///
///     class MillionRowsPartitioner : public Partitioner {
///       int64_t wished_shards(const VariableShape& shape) const override {
///         return shape.num_rows() / 1'000'000;
///       }
///     };
class Partitioner {
 public:
  virtual ~Partitioner() = default;

  /// Returns 1 to `shape.num_rows()`, or 1 if there are no rows. A scalar is not cut.
  int64_t num_shards(const VariableShape& shape) const;

 private:
  /// Returns the wanted number of shards. Called only for variables of one or more rows, not for scalars.
  /// num_shards() limits the result to 1 to the number of rows.
  virtual int64_t wished_shards(const VariableShape& shape) const = 0;
};

/// Cuts every variable into the same number of shards.
///
/// Example:
///
///     FixedShardsPartitioner(4).num_shards({{1'000'000, 64}});  // 4
class FixedShardsPartitioner : public Partitioner {
 public:
  /// Throws InvalidArgument if `num_shards` is below 1.
  explicit FixedShardsPartitioner(int64_t num_shards);

 private:
  int64_t wished_shards(const VariableShape& shape) const override;

  const int64_t num_shards_;
};

struct MinSizeOptions {
  int64_t min_shard_bytes = int64_t{256} << 10;
  int64_t max_shards = 1;
};

/// Makes as many shards as possible with at least `min_shard_bytes` each, so that small variables stay whole.
/// (TensorFlow's version rounds up and so also makes smaller shards.)
///
/// Example:
///
///     MinSizePartitioner partitioner({.min_shard_bytes = 1 << 20, .max_shards = 8});
///     partitioner.num_shards({{10'000, 64}});  // 2: 2,560,000 bytes
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

/// Makes as few shards as possible with at most `max_shard_bytes` each. A single row can still exceed the
/// limit, and so can every shard if `max_shards` is reached.
///
/// Example:
///
///     MaxSizePartitioner partitioner({.max_shard_bytes = 64 << 20});
///     partitioner.num_shards({{1'000'000, 64}});  // 4: 256,000,000 bytes
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

/// Makes one shard per server, so that lookups are spread over all. Makes fewer if shards would be smaller
/// than `min_shard_bytes`. If they would be larger than `max_shard_bytes`, makes the same larger number for
/// every server: saving a shard takes its memory once more, and a step of a shard delays its readers. The
/// lower limit takes precedence.
///
/// Example:
///
///     BalancedPartitioner partitioner({.num_servers = 3});
///     partitioner.num_shards({{1'000'000, 64}});  // 3
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

/// Cuts rows into ranges of nearly equal size; the first ranges get one row more if there is a remainder.
/// Throws InvalidArgument if `num_rows` is negative or `num_shards` is below 1.
std::vector<RowRange> cut_rows(int64_t num_rows, int64_t num_shards);

/// Returns "table/part_3" for shard 3 of a variable that is cut, and "table" for one that is not.
std::string shard_name(const std::string& variable, int64_t shard, int64_t num_shards);

}  // namespace lockstep
