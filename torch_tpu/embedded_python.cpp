#include "lockstep/torch_tpu/embedded_python.h"

#include <dlfcn.h>

#include <stdexcept>

#include "lockstep/runtime/base/errors.h"

namespace lockstep::torch_tpu {
namespace {

/// Runs the text in lockstep_code, and leaves its result and error in variables.
constexpr char kRunner[] = R"(
result = lockstep_error = ""
try:
    exec(lockstep_code, globals())
except BaseException as error:
    lockstep_error = f"{type(error).__name__}: {error}"
)";

/// Holds Python's lock.
class PythonLock {
 public:
  PythonLock(int (*ensure)(), void (*release)(int)) : release_(release), state_(ensure()) {}
  ~PythonLock() { release_(state_); }
  PythonLock(const PythonLock&) = delete;
  PythonLock& operator=(const PythonLock&) = delete;

 private:
  void (*release_)(int);
  int state_;
};

}  // namespace

EmbeddedPython::EmbeddedPython(const std::string& library) : library_(library) {
  handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle_ == nullptr) {
    const char* error = dlerror();  // NOLINT(concurrency-mt-unsafe): no other thread loads libraries
    throw InvalidArgument("[torch_tpu] expected the shared library of Python at '" + library + "', but " +
                          (error != nullptr ? error : "it cannot be loaded") +
                          ": set LOCKSTEP_LIBPYTHON to the libpython3.X.so of the Python that has torch_tpu");
  }
  if (find<int (*)()>("Py_IsInitialized")() != 0) return;
  find<void (*)(int)>("Py_InitializeEx")(0);
  find<void* (*)()>("PyEval_SaveThread")();
}

std::string EmbeddedPython::run(const std::string& code) const {
  const PythonLock lock(find<int (*)()>("PyGILState_Ensure"), find<void (*)(int)>("PyGILState_Release"));
  const auto drop = find<void (*)(void*)>("Py_DecRef");
  void* module = find<void* (*)(const char*)>("PyImport_AddModule")("__main__");  // borrowed
  void* text = find<void* (*)(const char*)>("PyUnicode_FromString")(code.c_str());
  const auto set = find<int (*)(void*, const char*, void*)>("PyObject_SetAttrString");
  const bool is_set = module != nullptr && text != nullptr && set(module, "lockstep_code", text) == 0;
  if (text != nullptr) drop(text);
  if (!is_set || find<int (*)(const char*)>("PyRun_SimpleString")(kRunner) != 0)
    throw std::runtime_error("[torch_tpu] Python could not run: " + code);
  const auto read = [&](const char* name) {
    void* value = find<void* (*)(void*, const char*)>("PyObject_GetAttrString")(module, name);
    const char* bytes = value ? find<const char* (*)(void*)>("PyUnicode_AsUTF8")(value) : nullptr;
    std::string copy = bytes != nullptr ? bytes : "";
    if (bytes == nullptr) find<void (*)()>("PyErr_Clear")();
    if (value != nullptr) drop(value);
    return copy;
  };
  const std::string error = read("lockstep_error");
  if (!error.empty()) throw std::runtime_error("[torch_tpu] Python: " + error);
  return read("result");
}

template <typename Function>
Function EmbeddedPython::find(const char* name) const {
  void* function = dlsym(handle_, name);
  if (function == nullptr) {
    throw InvalidArgument("[torch_tpu] expected a shared library of Python, but " + library_ + " has no " +
                          name +
                          ": set LOCKSTEP_LIBPYTHON to the libpython3.X.so of the Python that has torch_tpu");
  }
  return reinterpret_cast<Function>(function);
}

}  // namespace lockstep::torch_tpu
