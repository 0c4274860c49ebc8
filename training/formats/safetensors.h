#pragma once

#include <map>
#include <string>

#include "lockstep/training/formats/named_tensors.h"

namespace lockstep {

/// Contents of a .safetensors file.
struct Safetensors {
  NamedTensors tensors;  ///< On the CPU, contiguous, in the order of their bytes in the file.
  std::map<std::string, std::string> metadata;  ///< Free text by key.
};

/// Writes a .safetensors file, which Python's safetensors can read. Tensors may have any layout and device
/// and may share memory; each is written in full. The file is written next to `path` and renamed, so that a
/// failure leaves the old file intact. Blocks until the bytes are on the disk.
///
/// Throws InvalidArgument naming the tensor if it is sparse or undefined, if the format lacks its dtype
/// (complex128, quantized), or if its name is used twice, is not UTF-8, or is `__metadata__`. Throws
/// std::system_error if the system refuses to write.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Reads a .safetensors file, which need not be trusted. Throws CheckpointError naming the file, and the
/// tensor if it concerns one, if the file is damaged or hostile. Tensors take no more memory than the file's
/// length.
Safetensors load_safetensors(const std::string& path);

}  // namespace lockstep
