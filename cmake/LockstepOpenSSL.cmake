# Finds OpenSSL's libcrypto. An installed lockstep runs this same file for its users.

if(NOT TARGET OpenSSL::Crypto)
  find_package(OpenSSL REQUIRED)
  # Whoever links the layer, in whatever folder, must see what the layer links.
  set_target_properties(OpenSSL::Crypto PROPERTIES IMPORTED_GLOBAL TRUE)
endif()
