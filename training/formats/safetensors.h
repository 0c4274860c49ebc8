#pragma once

#include <map>
#include <string>

#include "lockstep/training/formats/named_tensors.h"

namespace lockstep {

/// What a .safetensors file holds.
struct Safetensors {
  NamedTensors tensors;                         ///< on the CPU, contiguous, in the order of their bytes
  std::map<std::string, std::string> metadata;  ///< free text by key
};

/// Writes a .safetensors file, which Python's safetensors reads. Tensors may be of any layout and device, and
/// share memory: each is written in full. The file is written beside `path` and renamed, so that a failure
/// leaves what was there. Blocks until the bytes are on the disk.
///
/// Throws InvalidArgument naming the tensor for a dtype that the format lacks (complex128, quantised), for
/// sparse and undefined tensors, and for a name that two have, that is no UTF-8 or `__metadata__`; and
/// std::system_error where the system refuses to write.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Reads a .safetensors file from whatever source: a damaged or hostile one throws CheckpointError naming the
/// file and, where there is one, the tensor. No more is allocated for tensors than the file is long.
Safetensors load_safetensors(const std::string& path);

}  // namespace lockstep
