#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/training/formats/internal/pickle_value.h"

// The values of a pickle while it is read.

namespace lockstep {

/// Where a value lies among all that were made. A container may be changed after others refer to it, and a
/// hostile one may hold itself: references are numbers, and the tree is made at the end.
using PicklePlace = uint32_t;

struct PickledGlobal {
  std::string name;
};
struct PickledStorage {
  const PickledDtype* dtype;  // null for bytes of any
  std::string record;
  uint64_t bytes;
};
struct PickledList {
  std::vector<PicklePlace> items;
};
struct PickledTuple {
  std::vector<PicklePlace> items;
};
struct PickledDict {
  std::vector<std::pair<PicklePlace, PicklePlace>> entries;
};
/// Large kinds are kept by pointer: most values are small, and a byte of a pickle can make one.
using PickleNode = std::variant<std::monostate, bool, int64_t, double, std::string, PickledGlobal,
                                std::unique_ptr<PickledStorage>, std::unique_ptr<PickledTensor>, PickledList,
                                PickledTuple, PickledDict>;

}  // namespace lockstep
