#pragma once

#include <string>

namespace lockstep {

/// How the parameters of a unit are cut, and when they are gathered.
struct UnitOptions {
  int index = 0;  ///< place of this rank among those that share the unit's parameters
  int size = 1;   ///< number of these ranks
  /// The axis of the mesh along which they are. Only "data", which is all replicas, can be used so far.
  std::string axis = "data";
  /// Keeps the whole parameters from forward until backward has used them, instead of gathering them again:
  /// for more memory, a gather less.
  bool keep_until_backward = false;
  /// The unit's name in errors. Empty: its block's type.
  std::string name{};
};

}  // namespace lockstep
