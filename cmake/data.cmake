# SPDX-License-Identifier: Apache-2.0
# Compiles data/*.csv and the model catalogue into the library, so that the program runs from anywhere.
file(GLOB ADP_DATA CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/data/*.csv ${CMAKE_SOURCE_DIR}/data/models/*.json)
set(ADP_EMBEDDED ${CMAKE_BINARY_DIR}/data_embedded.c)
add_custom_command(
  OUTPUT ${ADP_EMBEDDED}
  COMMAND ${CMAKE_COMMAND} -DOUT=${ADP_EMBEDDED} "-DFILES=${ADP_DATA}" -DROOT=${CMAKE_SOURCE_DIR}/data
          -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${ADP_DATA} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  VERBATIM)
