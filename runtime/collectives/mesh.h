#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep {

/// The part that an axis has in training.
enum class AxisRole : uint8_t {
  kData,     ///< The batch is cut along the axis, and gradients are summed over it.
  kModel,    ///< Layers may be cut along the axis. All of its ranks get the same shard of the batch.
  kContext,  ///< Sequences are cut along the axis: all of its ranks get the same shard of the batch, and
             ///< compute losses of different tokens of it. These add up, and gradients are summed over it.
};

/// Returns the role of an axis for which no other is given: kModel for "tensor" and "pipeline", kContext for
/// "context", and otherwise kData.
AxisRole usual_role(const std::string& axis);

/// One axis of a Mesh.
struct MeshAxis {
  std::string name;  ///< A lower-case letter, then lower-case letters, digits and underscores.
  int size = 1;      ///< At least 1.
  AxisRole role = usual_role(name);

  bool operator==(const MeshAxis&) const = default;
};

/// Arranges ranks in a grid with named axes, so that they can communicate along one axis at a time. The last
/// axis varies fastest: ranks next to each other on it have consecutive numbers, and usually belong to one
/// process.
///
/// A replica is the ranks that together compute one shard of the batch: those that differ on model and
/// context axes only. Without such axes, each rank is a replica, and has its number.
///
/// Example:
///
///     const Mesh mesh{{"data", 2}, {"shard", 4}};
///     mesh.coordinates(6);        // {1, 2}
///     mesh.groups("shard").at(1);  // {4, 5, 6, 7}
///     mesh.groups("data").at(2);   // {2, 6}
class Mesh {
 public:
  /// Has no axes; see over().
  Mesh() = default;
  /// Throws InvalidArgument for a malformed or repeated name, a size below 1, and more than kMostAxes axes or
  /// kMostReplicas replicas.
  Mesh(std::initializer_list<MeshAxis> axes) : Mesh(std::vector<MeshAxis>(axes)) {}
  explicit Mesh(std::vector<MeshAxis> axes);

  static constexpr size_t kMostAxes = 8;
  static constexpr int kMostReplicas = 1 << 20;

  const std::vector<MeshAxis>& axes() const { return axes_; }
  /// Returns the number of ranks, the product of all sizes.
  int size() const;
  /// Returns the number of replicas, the product of the sizes of the data axes.
  int num_replicas() const;
  /// Returns whether a replica has several ranks, which have parts of its model or of its sequences.
  bool cuts_models() const { return num_replicas() != size(); }
  /// Returns the number of the rank's replica.
  int replica_of(int rank) const;
  /// Returns whether no rank of the same replica has a lower number.
  bool is_first_of_replica(int rank) const;
  /// Returns the groups of ranks that differ on data axes only: one rank of each replica, in the order of
  /// replicas. Groups are in the order of their first ranks.
  std::vector<std::vector<int>> replica_groups() const;
  /// Returns the groups of ranks over which gradients are summed: those that differ on data and context axes
  /// only, and so hold the same parameters. Ordered as replica_groups().
  std::vector<std::vector<int>> gradient_groups() const;
  bool has(const std::string& axis) const;

  /// Returns this mesh, or one axis "data" over all replicas if it has no axes. Throws InvalidArgument if the
  /// sizes do not multiply to `num_replicas`, with sizes that do.
  Mesh over(int num_replicas) const;

  /// Returns the replica's coordinate on each axis, in the order of axes().
  std::vector<int> coordinates(int replica) const;
  /// Returns the groups of replicas that differ only in their coordinate on `axis`. Each group is in the
  /// order of that coordinate, and groups are in the order of their first replicas. Throws InvalidArgument,
  /// listing the axes, if there is no such axis.
  std::vector<std::vector<int>> groups(const std::string& axis) const;

  /// Returns the groups of ranks that hold the same part of parameters that are divided along `axis`: those
  /// of gradient_groups() with the same coordinate on it, in the order of their first ranks. Each group is in
  /// the order of ranks. Throws as groups() does.
  std::vector<std::vector<int>> groups_across(const std::string& axis) const;

  /// Returns the text that parse_mesh() takes.
  std::string str() const;

  bool operator==(const Mesh&) const = default;

 private:
  size_t position_of(const std::string& axis) const;
  template <typename IsApart>
  std::vector<std::vector<int>> groups_apart(const IsApart& is_apart) const;
  int stride_of(size_t position) const;

  std::vector<MeshAxis> axes_;
};

/// Parses axes such as "data=2,shard=4". An axis with another role than the usual one has it after its size,
/// as in "inner=2:model" or "inner=2:context". Throws InvalidArgument for other text, and as Mesh does.
Mesh parse_mesh(const std::string& text);

}  // namespace lockstep
