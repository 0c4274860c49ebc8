#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/training/formats/internal/pickle_value.h"

// The values of a pickle while it is read, and the tree that is built from them.

namespace lockstep {

/// Index of a value among all values read. A container may change after others refer to it, and a malicious
/// one may contain itself. So references are indices, and the tree is built at the end.
using NodeIndex = uint32_t;

struct PickledGlobal {
  std::string name;
};
struct PickledStorage {
  const PickledDtype* dtype;  // null: bytes of any dtype
  std::string record;
  uint64_t bytes;
};
struct PickledList {
  std::vector<NodeIndex> items;
};
struct PickledTuple {
  std::vector<NodeIndex> items;
};
struct PickledDict {
  std::vector<std::pair<NodeIndex, NodeIndex>> entries;
};
/// Large kinds are stored by pointer: most values are small, and a single byte of a pickle can create one.
using PickleNode = std::variant<std::monostate, bool, int64_t, double, std::string, PickledGlobal,
                                std::unique_ptr<PickledStorage>, std::unique_ptr<PickledTensor>, PickledList,
                                PickledTuple, PickledDict>;

/// Returns the value at `root` with everything it refers to, repeated for each reference. Throws
/// CheckpointError naming `file` if repeated values take a multiple of the pickle's bytes, if a value
/// contains itself or is nested deeper than kMaxNesting, or if a value is neither plain nor a tensor.
PickleValue pickle_tree(const std::vector<PickleNode>& nodes, NodeIndex root, size_t pickle_bytes,
                        const std::string& file);

}  // namespace lockstep
